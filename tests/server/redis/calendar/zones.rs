//! Every boundary of 400 days in 20 zones, compared with Python's zoneinfo.

use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use tollgate::{Calendar, Policy, policy::Weekday};

use crate::support::print_line;

/// Prints the zone, the rule and all boundaries, in microseconds.
const SCRIPT: &str = r#"
import datetime, sys
try:
    import zoneinfo
    zoneinfo.ZoneInfo('Europe/Berlin')
except Exception:
    print('missing')
    sys.exit()
first = datetime.date(2026, 1, 1)
for zone in sys.argv[1:]:
    info = zoneinfo.ZoneInfo(zone)
    def at(day, hour, minute):
        # Of a time that comes twice the earlier, of one that is skipped the later.
        local = datetime.datetime(day.year, day.month, day.day, hour, minute, tzinfo=info)
        return str(int(local.timestamp()) * 1000000)
    def last(day):
        return (day + datetime.timedelta(1)).month != day.month
    days = [first + datetime.timedelta(number) for number in range(400)]
    for name, starts, hour, minute in [
        ('day 0 0', days, 0, 0),
        ('day 2 30', days, 2, 30),
        ('day 23 59', days, 23, 59),
        ('sunday 1 30', [day for day in days if day.weekday() == 6], 1, 30),
        ('31 9 0', [day for day in days if last(day)], 9, 0),
        ('29 0 30', [day for day in days if day.day == 29 or last(day) and day.day < 29], 0, 30),
    ]:
        print(zone, name, *[at(day, hour, minute) for day in starts])
"#;

const ZONES: [&str; 20] = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "UTC",
];

#[test]
fn every_boundary_of_400_days_in_20_zones_is_that_of_zoneinfo_to_the_microsecond() {
    let Ok(output) = Command::new("python3").args(["-c", SCRIPT]).args(ZONES).output() else {
        eprintln!("SKIPPED: no python3, whose zoneinfo this test compares with");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    if text.trim() == "missing" {
        eprintln!("SKIPPED: python3 has no zoneinfo, or no zones");
        return;
    }
    let mut compared = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [zone, rule, hour, minute, ref starts @ ..] = words[..] else { panic!("{line}") };
        let calendar = match rule {
            "day" => Calendar::daily(),
            "sunday" => Calendar::weekly().on(Weekday::Sunday),
            day => Calendar::monthly().on_day(day.parse().unwrap()),
        };
        let calendar = calendar.at(hour.parse().unwrap(), minute.parse().unwrap()).zone(zone);
        let policy = Policy::calendar("p", 1, calendar).unwrap();
        let starts: Vec<u64> = starts.iter().map(|start| start.parse().unwrap()).collect();
        for bounds in starts.windows(2) {
            let (start, end) = (&bounds[0], &bounds[1]);
            let at = |time_us| UNIX_EPOCH + Duration::from_micros(time_us);
            let window = at(*start)..at(*end);
            for now_us in [*start, start + 1, (start + end) / 2, end - 1] {
                let found = policy.calendar_window(at(now_us));
                assert_eq!(found.as_ref(), Some(&window), "{zone} {rule} {hour}:{minute}");
            }
            compared += 1;
        }
    }
    print_line(&format!("{compared} boundaries of {} zones", ZONES.len()));
    assert!(compared > 20 * 3 * 398, "{compared}");
}
