use actix_web::{
    Error, HttpResponse,
    body::{EitherBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    error::ErrorInternalServerError,
    http::{
        StatusCode,
        header::{HeaderName, HeaderValue},
    },
    middleware::Next,
    web::Data,
};
use tollgate::{
    FailurePolicy, Limiter, PeerIp, Policy, headers::HeaderWriter,
    http::HeaderMap,
};

pub struct Limit {
    pub limiter: Limiter,
    pub policy: Policy,
}

pub async fn limit<B: MessageBody>(
    limit: Data<Limit>,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let peer = request.peer_addr();
    let peer = peer.ok_or_else(|| ErrorInternalServerError("no address"))?;
    let key = PeerIp::new().key_of(peer.ip());
    let checked = limit.limiter.check(key, &limit.policy, 1).await;
    let decision = FailurePolicy::Open.resolve(checked);

    let mut fields = HeaderMap::new();
    HeaderWriter::default().write(&decision, &mut fields);
    let mut response = match decision.into_result() {
        Ok(()) => next.call(request).await?.map_into_left_body(),
        Err(denial) => {
            let status = StatusCode::from_u16(denial.status().as_u16());
            let status = status.map_err(ErrorInternalServerError)?;
            let refusal = HttpResponse::build(status).body(denial.to_string());
            request.into_response(refusal).map_into_right_body()
        }
    };
    // actix-web has the types of http 0.2.
    for (name, value) in &fields {
        let name = HeaderName::try_from(name.as_str());
        let value = HeaderValue::from_bytes(value.as_bytes());
        response.headers_mut().insert(
            name.map_err(ErrorInternalServerError)?,
            value.map_err(ErrorInternalServerError)?,
        );
    }
    Ok(response)
}
