//! A real Envoy.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, net::SocketAddr, sync::LazyLock};

use crate::support::{ports::free_port, print_line, redis_server::Directory};

/// The path of Envoy; `None` where it cannot be had.
static ENVOY: LazyLock<Option<String>> = LazyLock::new(|| {
    if let Ok(path) = env::var("TOLLGATE_ENVOY")
        && path != "required"
    {
        return Some(path);
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/envoy");
    let output = Command::new(script).output().unwrap();
    let path = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    if output.status.success() {
        let version = Command::new(&path).arg("--version").output().unwrap().stdout;
        print_line(String::from_utf8_lossy(&version).trim());
        return Some(path);
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    assert!(env::var_os("TOLLGATE_ENVOY").is_none(), "Envoy is required: {why}");
    print_line(&format!("SKIPPED: the tests with Envoy, which cannot be had: {why}"));
    None
});

/// A running Envoy. It ends with this value.
pub(crate) struct Envoy {
    process: Child,
    pub(crate) address: String,
    folder: Directory,
}

/// How Envoy calls the service.
#[derive(Clone, Copy)]
pub(crate) struct Calls<'a> {
    /// How long it waits.
    pub(crate) timeout: &'a str,
    /// Whether it refuses without an answer.
    pub(crate) denies: bool,
    /// The rate limits of the route.
    pub(crate) rate_limits: &'a str,
}

impl Default for Calls<'_> {
    fn default() -> Self {
        Self { timeout: "5s", denies: true, rate_limits: TENANT }
    }
}

/// One descriptor with the tenant of the request.
pub(crate) const TENANT: &str = "
  - actions: [{ request_headers: { header_name: x-tenant, descriptor_key: tenant } }]";

/// Holds the estimate, and settles what the response says.
pub(crate) const TOKENS: &str = "
  - actions:
    - request_headers: { header_name: x-tenant, descriptor_key: tenant }
    - request_headers: { header_name: x-request-id, descriptor_key: hold }
    hits_addend: { format: '%REQ(x-estimate)%' }
  - actions:
    - request_headers: { header_name: x-tenant, descriptor_key: tenant }
    - request_headers: { header_name: x-request-id, descriptor_key: settle }
    hits_addend: { format: '%RESP(x-spent)%' }
    apply_on_stream_done: true";

/// The filter of the quota service: a bucket for each tenant.
const QUOTAS: &str = r#"          - name: envoy.filters.http.rate_limit_quota
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig
              domain: test
              rlqs_server: { envoy_grpc: { cluster_name: limits } }
              bucket_matchers:
                on_no_match:
                  action:
                    name: bucket
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings
                      bucket_id_builder:
                        bucket_id_builder:
                          tenant:
                            custom_value:
                              name: header
                              typed_config:
                                "@type": type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput
                                header_name: x-tenant
                      reporting_interval: 5s
                      no_assignment_behavior: { fallback_rate_limit: { blanket_rule: DENY_ALL } }
                      expired_assignment_behavior:
                        expired_assignment_behavior_timeout: 60s
                        fallback_rate_limit: { blanket_rule: DENY_ALL }
                      deny_response_settings: { http_status: { code: 429 } }
"#;

impl Envoy {
    /// Starts an Envoy between clients and `backend` that asks `service`. `None` where there is none.
    pub(crate) fn start(service: &str, backend: SocketAddr, calls: Calls<'_>) -> Option<Self> {
        let port = free_port();
        Self::run(port, &configuration(port, service, backend, calls))
    }

    /// Starts an Envoy that spends blocks of `service`.
    pub(crate) fn start_with_quotas(service: &str, backend: SocketAddr) -> Option<Self> {
        let port = free_port();
        let yaml = configuration(port, service, backend, Calls { rate_limits: " []", ..Calls::default() });
        let filter = yaml.find("          - name: envoy.filters.http.ratelimit\n").unwrap();
        Self::run(port, &format!("{}{QUOTAS}{}", &yaml[..filter], &yaml[filter..]))
    }

    /// Starts an Envoy with this configuration, which listens on `port`.
    pub(crate) fn run(port: u16, configuration: &str) -> Option<Self> {
        let program = ENVOY.as_ref()?;
        let folder = Directory::new();
        let path = folder.write("envoy.yaml", configuration);
        let log = fs::File::create(folder.path("log")).unwrap();
        let process = Command::new(program)
            .args(["--config-path", &path, "--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning"])
            .args(["--disable-hot-restart", "--base-id-path", &folder.path("id")])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut envoy = Self { process, address: format!("127.0.0.1:{port}"), folder };
        envoy.wait();
        Some(envoy)
    }

    fn wait(&mut self) {
        let start = Instant::now();
        while std::net::TcpStream::connect(&self.address).is_err() {
            let ended = self.process.try_wait().unwrap();
            assert!(
                ended.is_none() && start.elapsed() < Duration::from_secs(60),
                "Envoy does not start: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path("log")).unwrap_or_default()
    }

    /// The response to a request of this tenant, with further fields.
    pub(crate) async fn get(&self, client: &reqwest::Client, fields: &[(&str, &str)]) -> reqwest::Response {
        let mut request = client.get(format!("http://{}/", self.address));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    pub(crate) async fn status(&self, client: &reqwest::Client, tenant: &str) -> u16 {
        self.get(client, &[("x-tenant", tenant)]).await.status().as_u16()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configuration(port: u16, service: &str, backend: SocketAddr, calls: Calls<'_>) -> String {
    let Calls { timeout, denies, rate_limits } = calls;
    let rate_limits = rate_limits.replace('\n', "\n                    ");
    let service_port = service.rsplit_once(':').unwrap().1;
    let backend_port = backend.port();
    format!(
        r#"
static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{ prefix: / }}
                route: {{ cluster: backend, timeout: 60s }}
                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits:{rate_limits}
          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: test
              timeout: {timeout}
              failure_mode_deny: {denies}
              enable_x_ratelimit_headers: DRAFT_VERSION_03
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {{ envoy_grpc: {{ cluster_name: limits }} }}
          - name: envoy.filters.http.router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  clusters:
  - name: backend
    load_assignment:
      cluster_name: backend
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {backend_port} }} }} }}
  - name: limits
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: limits
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {service_port} }} }} }}
"#
    )
}
