// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands of `cargo xtask` in pages.

/// Lists the commands of a page: their words after `cargo xtask`. They are between backquotes, or in lines of code.
pub fn commands(page: &str) -> Vec<Vec<&str>> {
    const BEGIN: &str = "cargo xtask ";
    let found = page.match_indices(BEGIN).filter_map(|(at, _)| {
        let before = page.get(..at)?;
        let line = before.rsplit('\n').next()?;
        let is_code =
            before.ends_with('`') || line.is_empty() || line.trim() == "$" || line.starts_with("    ");
        let rest = page.get(at + BEGIN.len()..)?;
        let end = rest.find(['`', '\n', '#', '"', ';', '|']).unwrap_or(rest.len());
        let words: Vec<&str> = rest.get(..end)?.split_whitespace().take_while(|word| *word != "--").collect();
        is_code.then_some(words)
    });
    found.collect()
}

/// Returns the name of an option without its value; `None` for other words.
pub fn option(word: &str) -> Option<&str> {
    let name = word.strip_prefix("--")?;
    Some(name.split('=').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_in_code() {
        let page = "Use `cargo xtask a --b=1 C` or cargo xtask none.\n\n    cargo xtask d --e  # f\n```\ncargo xtask g -- --h\n```\n";
        assert_eq!(commands(page), [vec!["a", "--b=1", "C"], vec!["d", "--e"], vec!["g"]]);
        assert_eq!([option("--b=1"), option("C"), option("-c")], [Some("b"), None, None]);
    }
}
