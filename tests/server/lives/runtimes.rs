//! Servers of one port: one that stays, and others whose runtimes end with their connections.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::{sync::Arc, time::Duration};

use axum::Router;
use tokio::{runtime, time::sleep};

pub(super) struct Runtimes {
    address: SocketAddr,
    stays: Option<runtime::Runtime>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    ended: Arc<AtomicU64>,
}

impl Runtimes {
    pub(super) fn start(router: &Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let stays = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        stays.spawn(serve(listener.try_clone().unwrap(), router.clone()));
        let (stop, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..2_u64).map(|number| {
            let (listener, router) = (listener.try_clone().unwrap(), router.clone());
            let (stop, ended) = (Arc::clone(&stop), Arc::clone(&ended));
            thread::spawn(move || {
                for round in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    let server = serve(listener.try_clone().unwrap(), router.clone());
                    runtime.block_on(async {
                        let server = tokio::spawn(server);
                        sleep(Duration::from_millis(20 + 30 * number + round % 7 * 10)).await;
                        // No connection is accepted and then never served.
                        server.abort();
                    });
                    // Its connections and their requests end here, outside of a runtime that runs.
                    drop(runtime);
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        Self { address, stays: Some(stays), threads: threads.collect(), stop, ended }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all servers. Returns how many runtimes have ended before.
    pub(super) fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        // Clients that have gone are noticed, and the ends of their requests are sent, while this runtime runs.
        thread::sleep(Duration::from_millis(300));
        self.stays.take().unwrap().shutdown_background();
        self.ended.load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, router: Router) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    axum::serve(listener, router).await.unwrap();
}
