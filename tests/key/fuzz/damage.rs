//! Damage to a well-formed input.

use crate::support::random::Random;

/// Changes one to three bytes or ranges of `text`. Most changes involve the separators of the grammars.
pub(crate) fn damage(random: &mut Random, text: &mut Vec<u8>) {
    const SIGNS: &[u8] = b",,;;==\"\"\\\\[]::._%-/ \t\xff\xc3\xa90x";
    for _ in 0..=random.index(3) {
        let at = random.index(text.len() + 1);
        match random.index(6) {
            0 => text.truncate(at),
            1 if at < text.len() => drop(text.remove(at)),
            2 if at < text.len() => text[at] = random.pick(SIGNS),
            3 if at < text.len() => text[at] = random.next() as u8,
            4 => {
                // Repeats a range at another position.
                let end = at + random.index(text.len() - at + 1);
                let piece = text[at..end].to_vec();
                let to = random.index(text.len() + 1);
                text.splice(to..to, piece);
            }
            _ => text.insert(at, random.pick(SIGNS)),
        }
    }
}
