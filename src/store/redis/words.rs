//! The text of a server's error, without what it quotes of a call.
//!
//! The text says what is wrong and often what to do. Some texts also quote arguments, and an argument may be a key or a
//! password (law 10). So a text ends where it begins to quote one. Names of commands stay: they come from this crate.

/// The most characters of a text that are kept.
const MOST: usize = 200;

/// Returns the text as one line of at most 200 characters, up to the first argument that it quotes.
pub(super) fn without_arguments(text: &str) -> String {
    let cut = [text.find("args beginning with"), first_key(text), first_quote(text)].into_iter().flatten().min();
    let kept = &text[..cut.unwrap_or(text.len())];
    let kept =
        if cut.is_some() { kept.trim_end_matches(", with ").trim_end_matches([' ', ',', ':', '(']) } else { kept };
    let mut line: String = kept.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MOST).collect();
    if kept.chars().nth(MOST).is_some() {
        line.push_str("..");
    }
    line.trim().to_owned()
}

/// Where the first word begins that may be a key: all of ours have braces around their subject.
fn first_key(text: &str) -> Option<usize> {
    let brace = text.find('{')?;
    Some(text[..brace].rfind(char::is_whitespace).map_or(0, |space| space + 1))
}

/// Where the text first quotes something else than a name.
fn first_quote(text: &str) -> Option<usize> {
    // Lua quotes the names of its variables.
    let is_lua = text.contains("user_script");
    let mut from = 0;
    while let Some(offset) = text[from..].find(['\'', '`', '"']) {
        let open = from + offset;
        let quote = &text[open..=open];
        if text[..open].ends_with(|before: char| before.is_alphanumeric()) {
            // An apostrophe.
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

/// Whether this may be the name of a command or of a variable.
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
            ("no permission for tollgate:{alice smith}:p:l4", "no permission for"),
            ("{alice}:p is locked", ""),
            ("unclosed 'hunter2", "unclosed"),
            ("run the 'hunter2 and more' command", "run the"),
        ] {
            assert_eq!(without_arguments(text), kept);
        }
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
            assert_eq!(without_arguments(text), text);
        }
    }

    #[test]
    fn a_text_is_one_line_of_bounded_length() {
        assert_eq!(without_arguments("one\r\ntwo\u{7}"), "one  two");
        let long = without_arguments(&"é".repeat(10_000));
        assert_eq!(long, "é".repeat(MOST) + "..");
    }
}
