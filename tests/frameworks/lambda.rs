use std::net::IpAddr;

use bytes::Bytes;
use lambda_http::{
    Body, Error, Request, RequestExt, Response, request::RequestContext,
};
use tollgate::{
    FailurePolicy, Limiter, PeerIp, Policy, ProblemJson, headers::HeaderWriter,
};

pub async fn handle(
    limiter: &Limiter,
    policy: &Policy,
    request: Request,
) -> Result<Response<Body>, Error> {
    let address: IpAddr = match request.request_context() {
        RequestContext::ApiGatewayV2(context) => {
            context.http.source_ip.ok_or("no address")?.parse()?
        }
        _ => return Err("not an HTTP API".into()),
    };
    let key = PeerIp::new().key_of(address);
    let checked = limiter.check(key, policy, 1).await;
    let decision = FailurePolicy::Open.resolve(checked);

    let writer = HeaderWriter::default();
    if let Err(denial) = decision.clone().into_result() {
        let (head, _) = request.into_parts();
        let refusal: Response<Bytes> =
            denial.respond(&ProblemJson::default(), &writer, &head);
        return Ok(refusal.map(|body| Body::from(&*body)));
    }
    let mut response = Response::new(Body::from("hello"));
    writer.write(&decision, response.headers_mut());
    Ok(response)
}
