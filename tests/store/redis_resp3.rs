//! Which version of the protocol a store speaks with a server that hangs up, in a simulated world.

use std::{cell::Cell, rc::Rc, time::Duration};

use tokio::time::sleep;
use tollgate::Limiter;

use super::redis_world::{HANG_UP, builder, error, run};

#[test]
fn a_server_that_has_spoken_resp3_is_asked_for_it_again_after_a_hang_up_and_for_resp2_after_ten_seconds_of_them() {
    for (hang_ups, is_soon_back) in [(1, true), (u32::MAX, false)] {
        let handshakes = Rc::new(Cell::new(0));
        let (seen, has_hung_up) = (Rc::clone(&handshakes), Cell::new(false));
        let script = move |_: &str, command: &str| {
            let hangs_up = match command {
                "EVALSHA" => !has_hung_up.replace(true),
                "HELLO" => {
                    seen.set(seen.get() + 1);
                    (1..=hang_ups).contains(&(seen.get() - 1))
                }
                _ => false,
            };
            hangs_up.then(|| (0, HANG_UP.to_owned()))
        };
        run(script, async {
            let limiter = Limiter::new(builder().open("redis://10.0.0.1").unwrap());
            for (seconds, is_back) in [(5, is_soon_back), (10, true)] {
                let mut last = String::new();
                for _ in 0..10 * seconds {
                    last = error(&limiter).await;
                    sleep(Duration::from_millis(100)).await;
                }
                assert_eq!(last.contains("ERR asked"), is_back, "{hang_ups} hang-ups: {last}");
            }
        });
        assert_eq!(handshakes.get() == 3, is_soon_back, "{} handshakes with RESP3", handshakes.get());
    }
}

#[test]
fn a_hang_up_long_after_another_one_does_not_mean_that_the_server_lacks_resp3() {
    // The first call and then two handshakes meet a hang-up. For fifteen seconds between these, dials fail, or are
    // given up.
    for after_ms in [0, 60_000] {
        let (handshakes, is_away) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (seen, away, has_hung_up) = (Rc::clone(&handshakes), Rc::clone(&is_away), Cell::new(false));
        let script = move |_: &str, command: &str| match command {
            "DIAL" => away.get().then(|| (after_ms, "away".to_owned())),
            "EVALSHA" => (!has_hung_up.replace(true)).then(|| (0, HANG_UP.to_owned())),
            "HELLO" => {
                seen.set(seen.get() + 1);
                if seen.get() == 2 {
                    away.set(true);
                }
                [2, 3].contains(&seen.get()).then(|| (0, HANG_UP.to_owned()))
            }
            _ => None,
        };
        run(script, async {
            let limiter = Limiter::new(builder().open("redis://10.0.0.1").unwrap());
            for seconds in [15, 10] {
                for _ in 0..10 * seconds {
                    error(&limiter).await;
                    sleep(Duration::from_millis(100)).await;
                }
                is_away.set(false);
            }
            assert!(error(&limiter).await.contains("ERR asked"));
        });
        assert_eq!(handshakes.get(), 4, "handshakes with RESP3, dials of {after_ms} ms");
    }
}
