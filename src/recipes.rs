#![doc = include_str!("../docs/recipes.md")]
