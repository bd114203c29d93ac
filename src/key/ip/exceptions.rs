//! Exceptions from a set of addresses.

use std::fmt::Display;

use ipnet::IpNet;

use super::prefixes::{PrefixList, list};

impl PrefixList {
    /// Removes `prefixes` from the set: an allowed address inside a denied network.
    ///
    /// An IPv4 prefix removes IPv4 addresses alone. A set that lists addresses of NAT64 as IPv6 prefixes still contains
    /// them; remove those as `64:ff9b::198.51.100.7`. An address that is not in the set may be removed. Mistakes are
    /// those of [`and`](Self::and).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ClientIp, key::PrefixList};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let denied = PrefixList::new("198.51.100.0/24")?
    ///     .except("198.51.100.7, 198.51.100.64/28");
    /// assert!(
    ///     denied.contains("198.51.100.8".parse()?)
    ///         && !denied.contains("198.51.100.7".parse()?)
    /// );
    /// let client = ClientIp::peer().deny(denied);
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn except(mut self, prefixes: impl TryInto<Self, Error: Display>) -> Self {
        let Some(removed) = self.mistake.keep(list(prefixes)) else { return self };
        let removed: Vec<IpNet> = removed.nets().collect();
        let mut left = Vec::new();
        self.nets().for_each(|net| subtract(net, &removed, &mut left));
        let v4 = left.iter().filter_map(|net| if let IpNet::V4(net) = net { Some(*net) } else { None });
        let v6 = left.iter().filter_map(|net| if let IpNet::V6(net) = net { Some(*net) } else { None });
        let (v4, v6) = (v4.collect(), v6.collect());
        Self { v4, v6, ..self }
    }

    fn nets(&self) -> impl Iterator<Item = IpNet> {
        let v4 = self.v4.iter().map(|&net| net.into());
        v4.chain(self.v6.iter().map(|&net| net.into()))
    }
}

/// Adds the prefixes of `net` without those of `removed` to `left`, in order.
fn subtract(net: IpNet, removed: &[IpNet], left: &mut Vec<IpNet>) {
    if removed.iter().any(|removed| removed.contains(&net)) {
        return;
    }
    let inside: Vec<IpNet> = removed.iter().copied().filter(|removed| net.contains(removed)).collect();
    match net.subnets(net.prefix_len() + 1) {
        Ok(halves) if !inside.is_empty() => halves.for_each(|half| subtract(half, &inside, left)),
        // A single address contains nothing but itself.
        _ => left.push(net),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(list: &PrefixList, address: &str) -> bool {
        list.contains(address.parse().unwrap())
    }

    #[test]
    fn an_exception_is_not_in_the_list_and_all_others_still_are() {
        let denied = PrefixList::new(["198.51.100.0/24", "203.0.113.7", "2001:db8::/32", "64:ff9b::/64"]).unwrap();
        let allowed = ["198.51.100.7", "198.51.100.64/28", "192.0.2.1", "203.0.113.7", "2001:db8:17::/48"];
        let list = denied.except(allowed).validated().unwrap();
        for outside in ["198.51.100.7", "198.51.100.64", "198.51.100.79", "203.0.113.7", "2001:db8:17::9", "192.0.2.1"]
        {
            assert!(!contains(&list, outside), "{outside}");
        }
        for inside in
            ["198.51.100.0", "198.51.100.6", "198.51.100.8", "198.51.100.63", "198.51.100.80", "198.51.100.255"]
        {
            assert!(contains(&list, inside), "{inside}");
        }
        for inside in ["2001:db8:16:ffff::", "2001:db8:18::", "2001:db8:ffff::1", "64:ff9b::198.51.100.7"] {
            assert!(contains(&list, inside), "{inside}");
        }
        assert!(!contains(&list.clone().except("64:ff9b::198.51.100.7"), "64:ff9b::198.51.100.7"));
        assert!(contains(&list.clone().and("198.51.100.7"), "198.51.100.7"), "added again");
        assert!(list.clone().except("198.51.100.0/16, 2001:db8::/16, 64::/16").is_empty());
        assert!(list.except("everybody").validated().is_err());
    }
}
