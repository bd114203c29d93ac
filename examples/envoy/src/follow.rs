//! Follows the configuration while the service runs.

use std::{path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use metrics::counter;
use tokio::{task::spawn_blocking, time::sleep};

use crate::config::{Config, Content, read};
use crate::lines;

/// Looks so often. Content that has stayed the same from one look to the next is complete.
const PAUSE: Duration = Duration::from_millis(200);

/// Puts each new content of `path` into force, and reports what it refuses. Never returns.
pub(crate) async fn follow(path: PathBuf, mut current: Content, has_local: bool, config: Arc<ArcSwap<Config>>) {
    let mut last_seen: Option<Content> = None;
    let mut refused: Option<Content> = None;
    let mut reported: Option<String> = None;
    loop {
        sleep(PAUSE).await;
        let path = path.clone();
        let Ok(result) = spawn_blocking(move || read(&path)).await else { continue };
        let outcome = match result {
            Ok(content) if content == current => {
                (last_seen, refused, reported) = (None, None, None);
                continue;
            }
            Ok(content) if refused.as_ref() == Some(&content) => continue,
            Ok(content) if last_seen.as_ref() == Some(&content) => {
                // A large file takes longer than a call may.
                let parse = spawn_blocking(move || (Config::parse(&content, has_local), content));
                let Ok((parsed, content)) = parse.await else {
                    refused = last_seen.take();
                    continue;
                };
                match parsed {
                    Ok(new) => {
                        current = content;
                        config.store(Arc::new(new));
                        Ok(())
                    }
                    Err(mistakes) => {
                        refused = Some(content);
                        Err(mistakes)
                    }
                }
            }
            Ok(content) => {
                last_seen = Some(content);
                continue;
            }
            Err(mistakes) => {
                refused = None;
                Err(mistakes)
            }
        };
        match outcome {
            Ok(()) => {
                counter!("tollgate_envoy_config_loads_total", "outcome" => "accepted").increment(1);
                lines::inform("The new configuration is in force");
                (last_seen, refused, reported) = (None, None, None);
            }
            Err(mistakes) => {
                let message = mistakes.to_string();
                if reported.as_ref() != Some(&message) {
                    counter!("tollgate_envoy_config_loads_total", "outcome" => "refused").increment(1);
                    lines::warn(&format!("the old configuration stays in force:\n{message}"));
                    reported = Some(message);
                }
            }
        }
    }
}
