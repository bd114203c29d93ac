//! The address of a server, and the connections that the compared limiters use.

use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, aio::MultiplexedConnection, io::tcp::TcpSettings};

use crate::{Result, link::Link};

/// A server that speaks the protocol of Redis: directly, or at the far end of a [`Link`].
#[derive(Clone, Debug)]
pub struct Endpoint {
    url: String,
}

impl Endpoint {
    /// A local port.
    pub fn local(port: u16) -> Self {
        Self { url: format!("redis://127.0.0.1:{port}") }
    }

    /// The server at a URL.
    pub fn at(url: String) -> Self {
        Self { url }
    }

    /// The same server behind a simulated network.
    pub fn behind(link: Link) -> Self {
        Self { url: link.url() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client whose connections have TCP_NODELAY, like the connections of tollgate's store.
    pub fn client(&self) -> Result<Client> {
        let info = self.url().into_connection_info()?;
        Ok(Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))?)
    }

    pub async fn multiplexed(&self) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(Duration::from_secs(10)))
            .set_pipeline_buffer_size(1024);
        Ok(self.client()?.get_multiplexed_async_connection_with_config(&config).await?)
    }

    pub fn blocking(&self) -> Result<redis::Connection> {
        Ok(self.client()?.get_connection()?)
    }
}
