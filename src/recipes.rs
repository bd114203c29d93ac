//! Programs for common tasks: plans, logins, bans, tokens, tests and resets.

// The definitions before the page replace those at its end, as in `guide.rs`.

#![doc = ""]
#![doc = "[by hand]: crate::guide::operations#counts-by-hand"]
#![doc = "[calendar]: crate::guide::calendar"]
#![doc = "[gateway]: crate::guide::model_gateway"]
#![doc = "[holds]: crate::guide::holds"]
#![doc = "[plans]: crate::guide::plans"]
#![doc = ""]
#![doc = include_str!("../docs/recipes.md")]
