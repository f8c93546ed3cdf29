//! Names and texts of a volume as people are shown them. A volume may come from anybody, and a name
//! may be any bytes but a slash and zero: printed as they are they could move a terminal's cursor,
//! hide others, or pass for two lines.

/// The text, with what cannot be seen, or is no UTF-8, as escapes: `\n`, `\u{1b}`, `\xff`. A
/// backslash is shown as two, so that no two names look the same.
pub fn shown(name: &[u8]) -> String {
    let mut all = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        // Only quotes are escaped there that need not be.
        let text = chunk.valid().escape_debug().to_string();
        all.push_str(&text.replace("\\\"", "\"").replace("\\'", "'"));
        all.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_can_be_seen_is_shown_as_it_is() {
        for name in ["plain.txt", "a name with 'quotes' and \"more\"", "Grüße, 世界", "e\u{301}"]
        {
            assert_eq!(shown(name.as_bytes()), name);
        }
        for (name, seen) in [
            (&b"two\nlines"[..], "two\\nlines"),
            (b"\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            (b"\xff\xfe.txt", "\\xff\\xfe.txt"),
            (b"back\\slash\\'", "back\\\\slash\\\\'"),
            ("txt.\u{202e}exe".as_bytes(), "txt.\\u{202e}exe"),
            ("\u{9b}2J".as_bytes(), "\\u{9b}2J"),
        ] {
            assert_eq!(shown(name), seen);
        }
    }
}
