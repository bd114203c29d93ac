// The script: one text, one SHA-1. An expression for `include!`, and the only list of the files of the script.
concat!(
    include_str!("prelude.lua"),
    include_str!("rare.lua"),
    include_str!("ring.lua"),
    include_str!("sliding_window_log.lua"),
    include_str!("sliding_window_counter.lua"),
    include_str!("fixed_window.lua"),
    include_str!("token_bucket.lua"),
    include_str!("refund.lua"),
    include_str!("by_hand.lua"),
    include_str!("holds.lua"),
    include_str!("check_together.lua"),
    include_str!("check.lua"),
)
