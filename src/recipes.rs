//! Programs for common tasks: plans, logins, bans, tokens, tests, resets and migration.
#![doc = ""]
#![doc = include_str!("../docs/recipes.md")]
