//! Both ends of a table of plans in a file: blocked policies, and unlimited plans.

use tollgate::plans::{Plan, Plans};
use tollgate::{
    ExtensionKey, GlobalKey, Key, Limiter, LiveLimits, MemoryStore, Policy, decision::Source, limits::LimitsConfig,
};

use super::check;
use crate::support::app::{app, limiter};
use crate::support::{http::get, says};

const FILE: &str = r#"
    default.policies = ["free"]
    [policies]
    free.rate = "1/min"
    suspended = { blocked = true, in-code = true }
    watched = { blocked = true, shadow = true, unit = "tokens", in-code = true }
    staff.unlimited = true
    Partner = { unlimited = true, in-code = true }
"#;

fn read(file: &str) -> LimitsConfig {
    check(file).unwrap()
}

#[test]
fn a_blocked_policy_of_a_file_is_the_one_of_the_constructor() {
    let limits = read(FILE);
    let blocked = |name| Policy::blocked(name).unwrap();
    assert_eq!(limits.policy("suspended"), Some(&blocked("suspended")));
    assert_eq!(limits.policy("watched"), Some(&blocked("watched").with_shadow(true).with_unit("tokens")));
    assert_eq!((limits.policy("staff"), limits.policies().count()), (None, 3));
    assert!(limits.warnings().is_empty(), "{:?}", limits.warnings());
    assert_ne!(limits, read(&FILE.replace("Partner", "partners")));
}

#[test]
fn what_a_blocked_or_unlimited_policy_does_not_have_is_a_mistake() {
    for (policy, expected) in [
        ("{ blocked = true, rate = \"9/s\" }", "p.rate: a blocked policy has no rate; leave out rate or blocked"),
        ("{ blocked = true, holds = true }", "p.holds: a blocked policy has no holds; leave out holds or blocked"),
        (
            "{ blocked = true, unlimited = true }",
            "p.unlimited: a blocked policy has no unlimited; leave out unlimited or blocked",
        ),
        ("{ blocked = false }", "p.blocked: false is not true; write true, or leave the field out"),
        ("{ rate = \"9/s\", unlimited = true }", "p.rate: an unlimited plan has no rate; leave out rate or unlimited"),
        (
            "{ unlimited = true, shadow = true }",
            "p.shadow: an unlimited plan has no shadow; leave out shadow or unlimited",
        ),
        ("{ unlimited = 1 }", "p.unlimited: 1 is not true; write true, or leave the field out"),
        ("{ limit = 0, window = \"1s\" }", "p.limit: 0 is out of range; write 1 to 1099511627776"),
    ] {
        let file = format!("policies.free.rate = '1/s'\ndefault.policies = ['free']\npolicies.p = {policy}");
        assert_eq!(check(&file), Err(format!("policies.{expected}")), "{policy}");
    }
    let staff = "policies.staff.unlimited = true\ndefault.policies = ['Staff']";
    let expected = "\"Staff\" is an unlimited plan, which only code gets; write exempt = true in a route";
    says(check(staff).unwrap_err(), expected);
    says(check(&format!("policies.Staff.rate = '1/s'\n{staff}")).unwrap_err(), "another policy has this name");
}

#[tokio::test]
async fn a_blocked_policy_of_a_file_refuses_the_requests_of_its_route() {
    let file = format!("routes.'/search'.policies = ['suspended']\n{FILE}");
    let app = app(read(&file).layer(limiter(), GlobalKey).unwrap());
    assert_eq!((get(&app, "/search").await.status.as_u16(), get(&app, "/").await.status.as_u16()), (403, 200));
    // A cost above 1 is no mistake of a route that refuses everything.
    let costly = format!("routes.'/search' = {{ policies = ['suspended'], cost = 9 }}\n{FILE}");
    assert!(read(&costly).layer(limiter(), GlobalKey).is_ok());
}

#[tokio::test]
async fn a_plan_by_name_can_be_blocked_or_unlimited_and_follows_the_file() {
    let live = LiveLimits::new(read(FILE));
    let source = |key: Key| async move { Ok::<Plan, &str>(String::from_utf8_lossy(key.encoded()).as_ref().into()) };
    let plans = Plans::of_limits(&live, source, "free").unwrap().with_one_count("plan");
    let limiter = Limiter::new(MemoryStore::new());
    let ask = async |plan: &str| {
        let _ = plans.get(plan);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let decision = limiter.check_all(plans.check(plan, 1)).await.unwrap();
        (decision.is_allowed(), decision.source())
    };
    assert_eq!(ask("suspended").await, (false, Source::Policy));
    assert_eq!(ask("partner").await, (true, Source::Policy));
    assert!(plans.insert("account", "staff").is_ok() && plans.insert("account", "nobody").is_err());
    live.replace(read(&FILE.replace("staff.unlimited = true", "staff = { blocked = true, in-code = true }"))).unwrap();
    assert_eq!(ask("staff").await, (false, Source::Policy));
    let unlimited = "policies.free.unlimited = true\npolicies.p.rate = '1/s'\ndefault.policies = ['p']";
    says(live.replace(read(unlimited)).unwrap_err(), "the default plan is unlimited");
    assert!(Plans::of_limits(&live, |_: Key| async { Ok::<Option<String>, &str>(None) }, "Partner").is_err());
    let _ = live.layer(Limiter::new(MemoryStore::new()), ExtensionKey::<u64>::new()).unwrap().with_policies(plans);
}
