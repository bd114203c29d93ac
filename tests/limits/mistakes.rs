//! Mistakes: each has its place and says what to write instead.

use tollgate::limits::LimitsConfig;

use super::{check, mistakes, with_policy};

/// Text after [`with_policies`], and its only mistake.
const CASES: &[(&str, &str)] = &[
    (
        "policies.q.rate = 5",
        "policies.q.rate: 5 is not a rate; write \"10/s\", \"60/min\", \"100/hour\", \"9500/day\" or \"3/500ms\"",
    ),
    ("policies.q.rate = \"0/s\"", "policies.q.rate: \"0/s\" lets nothing through; write 1 unit or more"),
    (
        "policies.q.rate = \"1099511627777/s\"",
        "policies.q.rate: \"1099511627777/s\" is out of range; write at most 1099511627776 units",
    ),
    ("policies.q.rate = \"5/367d\"", "policies.q.rate: a window of 31708800s is too long; use at most 366 days"),
    ("policies.q.rate = \"5/0ms\"", "policies.q.rate: a window of 0ns is too short; use at least 1 µs"),
    ("policies.q = {}", "policies.q.rate: a policy needs a rate; write rate = \"60/min\" or the like"),
    ("policies.q.limit = 5", "policies.q.window: a limit needs a window; write window = \"60s\" or the like"),
    ("policies.q.window = \"5s\"", "policies.q.limit: a window needs a limit; write limit = 60 or the like"),
    ("policies.q = { limit = 0, window = \"5s\" }", "policies.q.limit: 0 is out of range; write 1 to 1099511627776"),
    (
        "policies.q = { limit = 5.0, window = \"5s\" }",
        "policies.q.limit: 5.0 is not a whole number; write 1 to 1099511627776",
    ),
    (
        "policies.q = { limit = 5, window = \"5min\" }",
        "policies.q.window: \"5min\" is not a duration; write \"500ms\", \"90s\", \"5m\", \"2h\" or \"1d\"",
    ),
    ("policies.q = \"60/min\"", "policies.q: \"60/min\" is not a table; write one, with its fields"),
    (
        "policies.\"a b\".rate = \"5/s\"",
        "policies.\"a b\": policy name \"a b\" is not usable in a header: start with a letter or `*`, go on with letters, digits or any of !#$%&'*+-.^_`|~:/ up to 64 characters",
    ),
    ("policies.P.rate = \"5/s\"", "policies.p: another policy has this name (case is ignored); rename one"),
    (
        "policies.p.algorithm = \"sliding-window\"",
        "policies.p.algorithm: \"sliding-window\" is not known; write one of \"log\", \"counter\", \"fixed\", \"token-bucket\"",
    ),
    (
        "policies.p.algorithm = 3",
        "policies.p.algorithm: 3 is not a string; write one of \"log\", \"counter\", \"fixed\", \"token-bucket\"",
    ),
    (
        "policies.p.resolution = \"61s\"",
        "policies.p.resolution: a resolution of 61s is out of range; use 1 µs up to the window, 60s",
    ),
    (
        "policies.q = { rate = \"5/s\", algorithm = \"fixed\", resolution = \"10ms\" }",
        "policies.q.resolution: only the log has a resolution; leave out the resolution or the algorithm",
    ),
    (
        "policies.p.burst = 5",
        "policies.p.burst: only a token bucket has a burst; add algorithm = \"token-bucket\", or leave the burst out",
    ),
    (
        "policies.p.count_rejected = true",
        "policies.p.count_rejected: no field has this name; did you mean count-rejected?",
    ),
    ("policies.p.count-rejected = \"yes\"", "policies.p.count-rejected: \"yes\" is not a boolean; write true or false"),
    (
        "policies.p.unit = \"two words\"",
        "policies.p.unit: unit \"two words\" is not usable in a header; write \"content-bytes\", \"concurrent-requests\" or the like, a letter and then letters, digits or dashes",
    ),
    ("policies.p.unit = 1979-05-27", "policies.p.unit: a date is not a string; write it in quotes"),
    (
        // Without usable shards, no cost is compared with the policy.
        "policies.p.shards = 61\ndefault.cost = 61",
        "policies.p.shards: 61 shards are out of range; use 1 to 60, because each shard needs a unit of the limit and of the burst",
    ),
    ("policies.p.shards = 65", "policies.p.shards: 65 is out of range; write 1 to 64"),
    ("policies.p.ban-after = 20", "policies.p.ban-after: 20 is not a table; write one, with its fields"),
    (
        "policies.p.ban-after = { denials = 0, for = \"1m\" }",
        "policies.p.ban-after.denials: 0 is out of range; write 1 to 4294967295",
    ),
    (
        "policies.p.ban-after = { for = \"1m\" }",
        "policies.p.ban-after.denials: a ban needs a number of denials; write denials = 20",
    ),
    ("policies.p.ban-after = { denials = 2 }", "policies.p.ban-after.for: a ban needs a duration; write for = \"10m\""),
    (
        "policies.p.ban-after = { denials = 2, for = \"400d\" }",
        "policies.p.ban-after.for: a ban after 2 denials for 34560000s is out of range; use at least 1 denial and 1 µs to 366 days",
    ),
    (
        "policies.p.ban-after = { denials = 2, for = \"10m\", growing-to = \"1m\" }",
        "policies.p.ban-after.growing-to: bans of 600s cannot grow to 60s; use 600s to 366 days",
    ),
    (
        "policies.p.ban-after = { denials = 2, for = \"10m\", growing-to = \"400d\" }",
        "policies.p.ban-after.growing-to: a longest ban of 34560000s is out of range; use the duration of the first one to 366 days",
    ),
    (
        "policies.p.near-limit = 80",
        "policies.p.near-limit: 80 is not a share of the limit; write a number above 0 and at most 1, such as 0.8, or false",
    ),
    (
        "policies.p.near-limit = nan",
        "policies.p.near-limit: NaN is not a share of the limit; write one above 0 and at most 1, such as 0.8 for 80 %",
    ),
    (
        "policies.q = { concurrent = 3, rate = \"5/s\" }",
        "policies.q.rate: a concurrency limit has no rate; leave out rate or concurrent",
    ),
    (
        "policies.q = { limit = 9, calendar = \"month\", starts = \"32\" }",
        "policies.q.starts: \"32\" is not a start of a month; write \"15\", \"15 09:00\" or \"09:00\"",
    ),
    (
        "policies.q = { limit = 9, calendar = \"week\", zone = \"Mars\" }",
        "policies.q.zone: \"Mars\" is not a zone; write a name such as \"Europe/Berlin\", \"UTC\", or an offset such as \"+05:30\"",
    ),
    (
        "policies.q = { rate = \"9/day\", zone = \"UTC\" }",
        "policies.q.zone: zone needs a calendar; write calendar = \"month\" or the like",
    ),
    (
        "policies.q = { limit = 9, calendar = \"day\", algorithm = \"log\" }",
        "policies.q.algorithm: a calendar has no algorithm; leave out algorithm or calendar",
    ),
    ("policies.q.concurrent = 0", "policies.q.concurrent: 0 is out of range; write 1 to 1099511627776"),
    (
        "policies.q = { concurrent = 3, holds = false }",
        "policies.q.holds: a concurrency limit always holds; leave holds out",
    ),
    (
        "policies.q = { concurrent = 3, holds = { unsettled = \"charge\" } }",
        "policies.q.holds.unsettled: a slot of a concurrency limit is always released; leave unsettled out",
    ),
    (
        "policies.p.holds = \"yes\"",
        "policies.p.holds: \"yes\" is neither a boolean nor a table; write holds = true, or the settings, such as holds = { ttl = \"5m\" }",
    ),
    (
        "policies.p.holds = { ttl = \"10min\" }",
        "policies.p.holds.ttl: \"10min\" is not a duration; write \"500ms\", \"90s\", \"5m\", \"2h\" or \"1d\"",
    ),
    ("policies.p.holds = { ttl = \"0s\" }", "policies.p.holds.ttl: 0ns is out of range; write \"1ms\" to \"366d\""),
    (
        "policies.p.holds = { unsettled = \"relase\" }",
        "policies.p.holds.unsettled: \"relase\" is not known; did you mean \"release\"?",
    ),
    ("policies.p.holds = { tll = \"5m\" }", "policies.p.holds.tll: no field has this name; did you mean ttl?"),
    (
        "policies.p.holds = true\npolicies.p.shards = 2\npolicies.p.count-rejected = true",
        "policies.p.holds: holds and shards and count-rejected exclude each other; leave out holds or shards and count-rejected",
    ),
    ("policies.p.lease = 61", "policies.p.lease: a lease of 61 units is out of range; use 1 to 60, the largest block"),
    (
        "policies.p.lease = 5\npolicies.p.holds.unsettled = \"release\"",
        "policies.p.lease: a lease and unsettled = \"release\" exclude each other; leave out lease or unsettled = \"release\"",
    ),
    (
        "policies.p.lease = 5\npolicies.p.ban-after = { denials = 2, for = \"1m\" }",
        "policies.p.lease: a lease and ban-after exclude each other; leave out lease or ban-after",
    ),
    ("policies.p.in-code = 1", "policies.p.in-code: 1 is not a boolean; write true or false"),
    ("policies.p.concurrency = 3", "policies.p.concurrency: no field has this name; did you mean concurrent?"),
    ("policies.p.max_concurrent = 3", "policies.p.max_concurrent: no field has this name; did you mean concurrent?"),
    ("policies.p.hold = true", "policies.p.hold: no field has this name; did you mean holds?"),
    ("policies.p.leases = 3", "policies.p.leases: no field has this name; did you mean lease?"),
    ("policy.q.rate = \"5/s\"", "policy: no field has this name; did you mean policies?"),
    ("default.failure = \"open\"", "default.failure: no field has this name; did you mean on-store-failure?"),
    ("routes.\"/a\".policy = [\"p\"]", "routes.\"/a\".policy: no field has this name; did you mean policies?"),
    (
        "routes.\"/a\".concurrent = 3",
        "routes.\"/a\".concurrent: this is a field of a policy; write it in [policies.NAME], and name that policy in policies",
    ),
    ("default.cost = 61", "default.cost: 61 is above the limit 60 of policy \"p\""),
    (
        "default.cost = 0",
        "default.cost: a cost of 0 charges nothing, so nothing would be limited; write 1 or more, or exempt = true in a route",
    ),
    ("default.cost = -1", "default.cost: -1 is out of range; write 1 to 1099511627776"),
    ("default.costs.P = 61", "default.costs.P: 61 is above the limit 60 of policy \"p\""),
    ("default.costs.q = 1", "default.costs.q: the request is charged under no policy of this name; write one of p"),
    (
        "default.costs.p = 0",
        "default.costs: every cost is 0, so nothing would be limited; give at least one policy a cost of 1 or more",
    ),
    (
        "default.on-store-failure = \"shut\"",
        "default.on-store-failure: \"shut\" is not known; write one of \"open\", \"closed\", \"local\"",
    ),
    (
        "default.exempt = true",
        "default.exempt: an exempt default would leave almost every request without a limit; write exempt in single routes",
    ),
    (
        "routes.\"/a\".policies = \"p\"",
        "routes.\"/a\".policies: \"p\" is not a list; write the names of policies, such as [\"per-client\"]",
    ),
    ("routes.\"/a\".policies = [1]", "routes.\"/a\".policies: 1 is not the name of a policy; write it in quotes"),
    (
        "routes.\"/a\".policies = []",
        "routes.\"/a\".policies: an empty list, so nothing would be limited; name at least one policy",
    ),
    (
        "routes.\"/a\".policies = [\"p\", \"P\"]",
        "routes.\"/a\".policies: \"P\" is in the list twice; leave one of the two out",
    ),
    ("routes.\"/a\".policies = [\"per\"]", "routes.\"/a\".policies: no policy is called \"per\"; write one of \"p\""),
    (
        "routes.\"/a\" = { cost = 61, costs = { p = 60 } }\nroutes.\"/b\".cost = 100",
        "routes.\"/b\".cost: 100 is above the limit 60 of policy \"p\"",
    ),
    (
        "routes.\"/a\".costs = { p = 1, P = 2 }",
        "routes.\"/a\".costs.p: this policy has a cost already (case is ignored); leave one of the two out",
    ),
    (
        "routes.\"/a\" = { exempt = true, on-store-failure = \"open\" }",
        "routes.\"/a\".on-store-failure: an exempt route charges nothing; leave out on-store-failure or exempt",
    ),
    ("routes.\"/a\".exmept = true", "routes.\"/a\".exmept: no field has this name; did you mean exempt?"),
    (
        "routes.\"get /a\".cost = 2",
        "routes.\"get /a\": route \"get /a\" is not understood: methods are case-sensitive; write \"GET /a\"",
    ),
    (
        "routes.\"/a//b\".cost = 2",
        "routes.\"/a//b\": no path has an empty segment, because repeated slashes count as one; write one slash",
    ),
    (
        "routes.\"/u/{id}\".cost = 2\nroutes.\"/u/{name}/\".cost = 3",
        "routes.\"/u/{name}/\": route \"/u/{name}/\" is in the table already (the names of parameters and trailing slashes are ignored); leave one of the two out",
    ),
    (
        "routes.\"/{*rest}\".exempt = true",
        "routes.\"/{*rest}\".exempt: the exempt routes cover every request, so nothing would be limited; leave exempt out, or give a route of its own to what is limited",
    ),
    ("headers = \"x-rate-limit\"", "headers: \"x-rate-limit\" is not known; did you mean \"x-ratelimit\"?"),
    ("shadow = \"no\"", "shadow: \"no\" is not a boolean; write true or false"),
    ("route.\"/a\".cost = 2", "route: no field has this name; did you mean routes?"),
];

#[test]
fn every_mistake_has_its_place_and_a_remedy() {
    for (text, mistake) in CASES {
        // The policy `p` is a table of the text, so that a case can add fields to it.
        assert_eq!(mistakes(&with_policy(text)), [*mistake], "{text}");
    }
    let without_policies = "default.policies: no policy is called \"p\"; add [policies.p] with a rate";
    assert_eq!(mistakes("default.policies = [\"p\"]"), [without_policies]);
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let file = r#"
        header = "draft-11"
        [policies.p]
        rate = "fast"
        shards = 100
        burst = 5
        [policies.q]
        rate = "5/min"
        ban-after = { denials = "x", fro = "1m" }
        [policies.r]
        concurrent = "many"
        rate = "5/min"
        window = "1m"
        holds = { ttl = "400d", typical = "0s", unsettled = "free" }
        lease = 5
        [default]
        policies = ["p", "q"]
        cost = 6
        [routes."search"]
        cost = 7
        costs = { q = 8, r = 1 }
        policies = ["q"]
    "#;
    let error = check(file).unwrap_err();
    let mut places: Vec<&str> = error.lines().map(|line| line.split_once(": ").unwrap().0).collect();
    places.sort_unstable();
    let expected = [
        "default.cost",
        "header",
        "policies.p.burst",
        "policies.p.rate",
        "policies.p.shards",
        "policies.q.ban-after.denials",
        "policies.q.ban-after.for",
        "policies.q.ban-after.fro",
        "policies.r.concurrent",
        "policies.r.holds.ttl",
        "policies.r.holds.typical",
        "policies.r.holds.unsettled",
        "policies.r.lease",
        "policies.r.rate",
        "policies.r.window",
        "routes.\"search\"",
        "routes.\"search\".costs.q",
        "routes.\"search\".costs.r",
    ];
    assert_eq!(places, expected, "{error}");
}

#[test]
fn shards_and_bursts_bound_costs() {
    let file = r#"
        policies.p = { rate = "60/min", shards = 7 }
        policies.b = { rate = "60/min", algorithm = "token-bucket", burst = 5 }
        policies.c = { rate = "60/min", shards = 2, ban-after = { denials = 2, for = "1m" } }
        default = { policies = ["p"], cost = 9 }
        routes."/b" = { policies = ["b"], cost = 6 }
    "#;
    let expected = [
        "default.cost: 9 is above the 8 units of the smallest of 7 shards of policy \"p\"",
        "policies.c.ban-after: each shard would count denials by itself, so a policy has either a ban or shards; leave \
         one of the two out",
        "routes.\"/b\".cost: 6 is above the burst 5 of policy \"b\"",
    ];
    assert_eq!(mistakes(file), expected);
}

#[test]
fn a_cost_above_the_limits_of_several_policies_is_one_mistake() {
    let file = r#"
        policies.p.rate = "5/min"
        policies.q.rate = "6/min"
        default = { policies = ["p", "q"], cost = 7 }
    "#;
    assert_eq!(mistakes(file), ["default.cost: 7 is above the limit 5 of policy \"p\""]);
}

#[test]
fn json_has_duplicate_keys_nulls_and_other_types() {
    let mistakes = |json: &str| {
        let error = serde_json::from_str::<LimitsConfig>(json).unwrap_err().to_string();
        error.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let twice = r#"{"policies": {"p": {"rate": "5/s", "rate": "6/s"}}, "default": {"policies": ["p"]}}"#;
    assert_eq!(mistakes(twice), ["policies.p.rate: this key is in the table twice; leave one of the two out"]);
    let null = r#"{"policies": {"p": {"rate": "5/s"}}, "default": {"policies": ["p"], "cost": null}}"#;
    assert_eq!(mistakes(null), ["default.cost: null is not a whole number; write 1 to 1099511627776"]);
    let huge = r#"{"policies": {"p": {"rate": "5/s"}}, "default": {"policies": ["p"], "cost": 18446744073709551615}}"#;
    assert_eq!(mistakes(huge), ["default.cost: 18446744073709551615 is out of range; write 1 to 1099511627776"]);
    for (file, first) in [("[]", "a list is not a table; write one, with its fields"), ("null", "default.policies: no")]
    {
        let mistakes = mistakes(file);
        assert!(mistakes.len() == 1 && mistakes[0].starts_with(first), "{mistakes:?}");
    }
}

#[test]
fn a_value_is_deserialized_directly_with_the_same_mistakes() {
    let error = serde_json::from_str::<LimitsConfig>(r#"{"default": {"cots": 2}}"#).unwrap_err().to_string();
    assert!(
        error.contains("default.cots: no field has this name; did you mean cost?\ndefault.policies: no"),
        "{error}"
    );
}

#[test]
fn a_long_value_is_cut_in_its_message() {
    let file = with_policy(&format!("policies.q.rate = \"{}\"", "é".repeat(10_000)));
    assert!(mistakes(&file)[0].len() < 300);
}

/// 3 000 policies, and as many routes that name other ones.
fn renamed(policies: usize) -> String {
    let policy = |number: usize| format!("policies.tenant-{number}.rate = '60/min'\n");
    let route = |number: usize| format!("routes.\"/r{number}\".policies = ['customer-{number}']\n");
    with_policy(&((0..policies).map(policy).collect::<String>() + &(0..policies).map(route).collect::<String>()))
}

#[test]
fn law_6_the_error_of_a_file_with_thousands_of_mistakes_is_short() {
    let text = check(&renamed(3_000)).unwrap_err();
    assert!(text.len() < 20_000, "{} bytes", text.len());
    assert_eq!(text.lines().count(), 33);
    assert!(text.contains("no policy is called \"customer-"), "{text}");
    assert!(text.contains(" and 2993 others\n"), "{text}");
    assert!(text.ends_with("\nand 2968 further mistakes, which are shown when these are corrected"), "{text}");
    let json = format!("{{\"policies\": {{\"p\": {{\"rate\": \"5/s\"}}}}, \"{}\": 1}}", "x".repeat(1_000_000));
    let text = serde_json::from_str::<LimitsConfig>(&json).unwrap_err().to_string();
    assert!(text.len() < 2_000, "{} bytes", text.len());
    let text = check(&with_policy(&format!("routes.\"/a\".policies = ['{}']", "x".repeat(1_000_000)))).unwrap_err();
    assert!(text.ends_with("xxx...\"; write one of \"p\""), "{text}");
}

#[test]
fn the_mistakes_of_ten_times_as_many_policies_take_about_ten_times_as_long() {
    let time = |policies: usize| {
        let file: toml::Value = toml::from_str(&renamed(policies)).unwrap();
        let run = || {
            let (file, started) = (file.clone(), std::time::Instant::now());
            file.try_into::<LimitsConfig>().unwrap_err();
            started.elapsed()
        };
        // The fastest of three, because other work of the machine delays some.
        (0..3).map(|_| run()).min().unwrap()
    };
    let (few, many) = (time(1_000), time(10_000));
    assert!(many < few * 40, "{few:?} for 1 000 policies, {many:?} for 10 000");
}
