//! Removes keys and passwords from the errors of a server.
//!
//! The text of an error says what is wrong and often what to do. Some texts quote arguments of the call, and an
//! argument may be a key or a password. So a text is cut where it begins to quote an argument. Names of commands stay:
//! they come from this crate.

use std::{borrow::Cow, cmp::Reverse};

/// The longest text that is kept, in characters.
const MAX_LENGTH: usize = 400;

/// The passwords of an address. No text shows them, quoted or not.
#[derive(Default)]
pub(crate) struct Passwords<'a>(Vec<Cow<'a, str>>);

impl<'a> Passwords<'a> {
    /// Keeps these passwords from errors.
    pub(crate) fn of(passwords: impl IntoIterator<Item = Cow<'a, str>>) -> Self {
        let mut passwords: Vec<_> = passwords.into_iter().collect();
        passwords.retain(|password| !password.is_empty());
        // Longer passwords first: a password may be a part of another.
        passwords.sort_unstable_by_key(|password| Reverse(password.len()));
        passwords.dedup();
        Self(passwords)
    }

    /// Replaces each password with `***`.
    fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.0.iter().fold(Cow::Borrowed(text), |text, password| match text.contains(&**password) {
            true => Cow::Owned(text.replace(&**password, "***")),
            false => text,
        })
    }
}

/// Returns the text as one line of at most 400 characters, without passwords, up to the first argument that it quotes.
pub(crate) fn without_arguments(text: &str, passwords: &Passwords) -> String {
    // Passwords are hidden before the cut, which could leave a part of one.
    let text = &*passwords.hide(text);
    let cut = [text.find("args beginning with"), first_key(text), first_quote(text)].into_iter().flatten().min();
    let kept = &text[..cut.unwrap_or(text.len())];
    let kept =
        if cut.is_some() { kept.trim_end_matches(", with ").trim_end_matches([' ', ',', ':', '(']) } else { kept };
    let mut line: String =
        kept.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MAX_LENGTH).collect();
    if kept.chars().nth(MAX_LENGTH).is_some() {
        line.push_str("..");
    }
    line.trim().to_owned()
}

/// The start of the first word that may be a key: all keys of this crate have braces around their subject.
fn first_key(text: &str) -> Option<usize> {
    let (before, _) = text.split_once('{')?;
    Some(before.trim_end_matches(|char: char| !char.is_whitespace()).len())
}

/// The start of the first quotation that is not a name.
fn first_quote(text: &str) -> Option<usize> {
    // Lua quotes the names of its variables.
    let is_lua = text.contains("user_script");
    let mut from = 0;
    while let Some(offset) = text[from..].find(['\'', '`', '"']) {
        let open = from + offset;
        let quote = &text[open..=open];
        if text[..open].ends_with(|before: char| before.is_alphanumeric()) {
            // This character is an apostrophe.
            from = open + 1;
            continue;
        }
        let Some((word, rest)) = text[open + 1..].split_once(quote) else { return Some(open) };
        let is_command = text[..open].ends_with("command ") || rest.starts_with(" command");
        if !is_name(word) || !(is_command || is_lua || word == "maxmemory") {
            return Some(open);
        }
        from = text.len() - rest.len();
    }
    None
}

/// Whether `word` may be the name of a command or of a variable.
fn is_name(word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'|' | b'.');
    (1..=32).contains(&word.len()) && word.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn law_10_a_text_ends_before_the_arguments_that_it_quotes() {
        for (text, kept) in [
            (
                "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'gate' 'hunter2' ",
                "unknown command 'HELLO'",
            ),
            ("unknown command `HELLO`, with args beginning with: `3`, `AUTH`, ", "unknown command `HELLO`"),
            ("Syntax error in HELLO option 'hunter2'", "Syntax error in HELLO option"),
            ("wrong password hunter2' or \"hunter2\"", "wrong password hunter2' or"),
            ("no permissions to access the 'tollgate:{alice}:p' key", "no permissions to access the"),
            ("no permission for tollgate:{alice smith}:p:l5", "no permission for"),
            ("{alice}:p is locked", ""),
            ("no value, with tollgate:{alice}:p", "no value"),
            ("key\u{3000}tollgate:{alice}:p is locked", "key"),
            ("unclosed 'hunter2", "unclosed"),
            ("run the 'hunter2 and more' command", "run the"),
        ] {
            assert_eq!(without_arguments(text, &Passwords::default()), kept);
        }
    }

    #[test]
    fn law_10_a_password_is_hidden_wherever_a_text_has_it() {
        let passwords = Passwords::of(["hunter2", "hunter2-s3cret", "é' x", ""].map(Cow::from));
        for (text, kept) in [
            ("WRONGPASS user gate password hunter2-s3cret is wrong", "WRONGPASS user gate password *** is wrong"),
            ("hunter2 is no hunter2-s3cret", "*** is no ***"),
            ("ERR unknown command 'hunter2-s3cret'", "ERR unknown command"),
            ("ERR user_script:3: bad 'hunter2-s3cret' x", "ERR user_script:3: bad"),
            ("wrong: é' x", "wrong: ***"),
        ] {
            assert_eq!(without_arguments(text, &passwords), kept);
        }
        // Not cut in two.
        let long = format!("{}hunter2-s3cret", "a".repeat(MAX_LENGTH - 7));
        assert!(!without_arguments(&long, &passwords).contains("hunter"));
    }

    #[test]
    fn a_text_without_arguments_stays_as_it_is() {
        for text in [
            "DB index is out of range",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "User gate has no permissions to run the 'evalsha' command",
            "You can't write against a read only replica.",
            "command not allowed when used memory > 'maxmemory'.",
            "wrong number of arguments for 'script|load' command",
            "user_script:9: attempt to index a nil value (global 'foo') script: 12ab, on @user_script:9.",
        ] {
            assert_eq!(without_arguments(text, &Passwords::default()), text);
        }
    }

    #[test]
    fn a_text_is_one_line_of_bounded_length() {
        assert_eq!(without_arguments("one\r\ntwo\u{7}", &Passwords::default()), "one  two");
        let long = without_arguments(&"é".repeat(10_000), &Passwords::default());
        assert_eq!(long, "é".repeat(MAX_LENGTH) + "..");
    }
}
