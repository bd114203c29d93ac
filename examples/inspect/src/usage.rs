//! The text of `--help`.

pub(crate) const USAGE: &str = "\
Looks at the counts and the open holds of one client in Redis, resets them, and
changes them by hand.

Usage: tollgate-inspect peek  OPTIONS KEY...
       tollgate-inspect reset OPTIONS KEY...
       tollgate-inspect reset OPTIONS --all --yes
       tollgate-inspect ban   OPTIONS KEY... DURATION
       tollgate-inspect unban OPTIONS KEY...
       tollgate-inspect take  OPTIONS KEY... UNITS
       tollgate-inspect give  OPTIONS KEY... UNITS

In a clone of the repository: cargo run --release -p tollgate-inspect -- peek ...

peek prints where the client stands under each policy. It changes nothing.
reset forgets what the client has spent and holds, lifts bans, and prints what
it removed.
reset --all does so for all clients under all policies of the prefix, on every
master, and prints how many Redis keys it removed. It scans the database in
steps of 1 000 keys, while checks go on.
ban refuses the client for DURATION (500ms, 90s, 10m, 2h, 1d; at most 366d)
under each policy, whatever is available. A later ban replaces an earlier one.
unban ends a ban. The counts stay what they would be without the ban.
The three find a ban after denials whatever --policy says of bans, if it is for a
usual time: seconds up to 10m, 5 seconds up to 1h, minutes up to 1d, hours, days.
take charges UNITS under one policy, whether or not they fit. What is beyond the
limit stays spent too, until it leaves the window or is given back.
give gives up to UNITS back under one policy, at most what is spent.

The last four print what they did, and then the table of peek. Processes of the
service see a ban and taken units at their next check. They remember denials for
up to a second, also after reset, unban and give.

Examples, with TOLLGATE_REDIS and TOLLGATE_KEY_SECRET in the environment

  a limit            peek --policy per-client=60/min ip:203.0.113.7
  with a ban         peek --policy login=5/min,ban-after=20/10m ip:203.0.113.7
  with holds         peek --policy tokens=100000/min,holds text:alice
  a concurrency
  limit              peek --policy streams=concurrent:4 token:@FILE
  with a lease       peek --policy per-tenant=9000000/min,lease=20000 text:acme
  all of a file      peek --config limits.toml ip:203.0.113.7
  one of a file      reset --config limits.toml --policy login ip:203.0.113.7
  a ban of an hour   ban --policy api=60/min ip:203.0.113.7 1h
  a refund           give --policy tokens=100000/min text:alice 20000

KEY is the client as the service's key extractor names it. Several KEYs are one
client: the parts of a tuple of extractors, in its order.

  ip:203.0.113.7     PeerIp, ClientIp; IPv6 addresses are grouped by /64
  ip/56:2001:db8::1  the same with with_ipv6_prefix(56)
  ip/24:203.0.113.7  the same with with_ipv4_prefix(24)
  text:alice         HeaderKey, ExtensionKey, closures; numbers and UUIDs too
  token:@FILE        ApiKey, Key::hashed; the file contains the token
  route:/search      MatchedPathKey
  fingerprint:TEXT   a whole client, by the key= of a log line, if the service
                     calls Fingerprint::set_secret with its key_secret
  unmatched          MatchedPathKey, for requests that no route matched
  global             GlobalKey

Columns of peek

  limit (as given)   the limit in --policy or --config; Redis has only counts
  spent              units that are charged, also beyond the limit; unknown (-)
                     during a ban
  held               units of requests that are not finished: open holds, slots
                     in use, blocks of leases
  open               the number of open holds
  until (last)       when the last of them ends by itself, unless it is renewed
  available          the largest cost that would pass now
  next unit, reset   when one of the spent units comes back, and when all have
  ban                when the ban ends

Redis: exactly one of

  --redis URL        one server [the environment's TOLLGATE_REDIS]
  --cluster URL      a node of a cluster; repeat the option for further nodes
  --sentinel URL     a sentinel; repeat the option for further sentinels
  --master NAME      with --sentinel: the master's name, or a URL with the name
                     as its host: redis://user:password@mymaster/2

Policies: --policy, --config, or both

  --policy NAME=RATE[,WORD=VALUE]...
                     for example per-client=60/min or
                     api=100/s,algorithm=token-bucket,burst=20. The words are
                     those of a limits file; ban-after=20/10m means 20 denials,
                     for 10 minutes. Repeat the option for further policies.
  --policy NAME=RATE,holds
                     the policy has holds; their settings do not matter here
  --policy NAME=RATE,lease=UNITS
                     the policy has a lease, and so it has holds
  --policy NAME=concurrent:SLOTS
                     a concurrency limit
  --config FILE      the service's limits file (TOML)
  --policy NAME      with --config: only this policy of the file

Settings of the service's store

  --prefix TEXT      the prefix of all Redis keys [tollgate:]
  --secret-file FILE the secret of the keys, without its last line break [the
                     environment's TOLLGATE_KEY_SECRET, otherwise no secret]
  --plain-keys       the service calls plain_keys()
  --hash-tags N      the cluster_hash_tags of a cluster, or none [48]
  --keep-nat64       the ClientIp calls keep_nat64()
  --nat64-prefix P   the extractor's with_nat64_prefix(P)

Connection

  --timeout TIME     longest wait for an answer: 500ms, 5s [5s]
  --ca FILE          certificates (PEM) for rediss:// [those of the system]
  --client-cert FILE --client-key FILE
                     the client's certificate and key (PEM)

Other users of this machine can read the arguments of a program. So URLs may be
written as @FILE: the file contains the URL. Tokens are always written so.

The table is on standard output, advice and errors are on standard error.
Exit code: 0 done, 1 Redis gave no answer or an error or has a value that is not
of tollgate, 2 wrong arguments.
";
