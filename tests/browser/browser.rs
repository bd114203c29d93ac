//! Chromium with one page, through its driver.

use std::{net::TcpStream, thread};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::{Client, ClientBuilder, Locator, wd::WebDriverCompatibleCommand};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use url::{ParseError, Url};

pub(crate) struct Browser {
    client: Client,
    _driver: Driver,
}

impl Browser {
    /// Opens a page, and waits until it receives events.
    pub(crate) async fn open(address: &str) -> Self {
        let browser = Self::start().await;
        browser.go_to(address).await;
        browser.until("the page receives events", "return text('#connection') === 'live'").await;
        browser
    }

    pub(crate) async fn start() -> Self {
        let mut driver = Driver::start();
        let port = driver.port;
        let options =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"];
        let capabilities = json!({
            "goog:chromeOptions": { "args": options },
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "script": 60_000 },
        });
        let Value::Object(capabilities) = capabilities else { unreachable!("an object was written") };
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(capabilities).connect(&format!("http://127.0.0.1:{port}")).await.unwrap();
        let session = client.session_id().await.unwrap().unwrap();
        driver.session = Some(session);
        let browser = Self { client, _driver: driver };
        browser.show(1280, "light").await;
        browser
    }

    pub(crate) async fn go_to(&self, address: &str) {
        self.client.goto(&format!("http://{address}/")).await.unwrap();
    }

    pub(crate) async fn click(&self, selector: &str) {
        self.client.find(Locator::Css(selector)).await.unwrap().click().await.unwrap();
    }

    /// Presses keys of the keyboard while an element has the focus.
    pub(crate) async fn press(&self, selector: &str, keys: &[&str]) {
        self.client.find(Locator::Css(selector)).await.unwrap().send_keys(&keys.concat()).await.unwrap();
    }

    /// Runs the body of a function in the page, with helpers to read what it shows.
    pub(crate) async fn run(&self, body: &str) -> Value {
        self.client.execute(&format!("{HELPERS}{body}"), vec![]).await.unwrap_or_else(|error| panic!("{body}: {error}"))
    }

    /// Runs the body of an asynchronous function in the page.
    pub(crate) async fn run_async(&self, body: &str) -> Value {
        let body =
            format!("{HELPERS}const done = arguments[arguments.length - 1];\n(async () => {{{body}}})().then(done);");
        self.client.execute_async(&body, vec![]).await.unwrap()
    }

    /// Waits until a condition holds in the page, for at most a minute.
    pub(crate) async fn until(&self, what: &str, condition: &str) {
        let start = Instant::now();
        while self.run(condition).await != Value::Bool(true) {
            if start.elapsed() > Duration::from_secs(60) {
                panic!("timed out waiting until {what}; the page shows:\n{}", self.text().await);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn text(&self) -> String {
        self.run("return document.body.innerText").await.as_str().unwrap().to_owned()
    }

    /// Sets the width of the screen and the preferred colors; the page is shown as a whole.
    pub(crate) async fn show(&self, width: u32, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
        for height in [800, 0] {
            let height = match height {
                0 => self.run("return document.documentElement.scrollHeight").await.as_u64().unwrap(),
                height => height,
            };
            let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
            self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        }
        // Until the charts are drawn in the new size.
        self.run_async("await new Promise((done) => setTimeout(done, 150))").await;
    }

    pub(crate) async fn screenshot(&self) -> Vec<u8> {
        self.client.screenshot().await.unwrap()
    }

    pub(crate) async fn screenshot_of(&self, selector: &str) -> Vec<u8> {
        self.client.find(Locator::Css(selector)).await.unwrap().screenshot().await.unwrap()
    }

    /// What the console has got since the last call, without the answers that the limits give.
    pub(crate) async fn console(&self) -> Vec<String> {
        let entries = self.command("se/log", json!({ "type": "browser" })).await;
        let messages = entries.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap().to_owned());
        messages.filter(|line| !["status of 429", "status of 503"].iter().any(|limit| line.contains(limit))).collect()
    }

    async fn devtools(&self, name: &str, parameters: Value) {
        self.command("goog/cdp/execute", json!({ "cmd": name, "params": parameters })).await;
    }

    async fn command(&self, path: &'static str, body: Value) -> Value {
        self.client.issue_cmd(Extension { path, body }).await.unwrap()
    }
}

/// The driver, which ends with this value, and its Chromium with it.
struct Driver {
    process: Child,
    port: u16,
    session: Option<String>,
}

impl Driver {
    fn start() -> Self {
        let mut command = Command::new("chromedriver");
        let command = command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("chromedriver is on the PATH");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines
            .find_map(|line| line.rsplit_once("started successfully on port ")?.1.trim_end_matches('.').parse().ok());
        thread::spawn(|| lines.for_each(drop));
        Self { process, port: port.expect("chromedriver prints its port"), session: None }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Chromium would outlive its driver.
        if let (Some(session), Ok(mut stream)) = (&self.session, TcpStream::connect(("127.0.0.1", self.port))) {
            let _ = write!(stream, "DELETE /session/{session} HTTP/1.1\r\nhost: localhost\r\n\r\n");
            let _ = stream.read(&mut [0; 1]);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Helpers for scripts: the text of an element, and the cells of a row of a table.
const HELPERS: &str = "
const text = (selector) => document.querySelector(selector)?.textContent ?? '';
const cells = (row) => [...row.cells].map((cell) => cell.textContent);
const table = (id) => [...document.querySelectorAll(`#${id} tr`)].map(cells);
const lane = (name) => cells(document.querySelector(`#lanes .${name}`).closest('tr'));
";

/// A command of Chromium's driver that is not part of WebDriver.
#[derive(Debug)]
struct Extension {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}
