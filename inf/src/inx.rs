// SPDX-License-Identifier: MIT OR Apache-2.0

//! `viordma.inx`: the template with the table of properties.

use std::{collections::BTreeMap, fmt::Write as _, fs, io, path::Path};

use crate::{
    Edition,
    keywords::{PROPERTIES, Property, Section, Values},
};

const TEMPLATE: &str = include_str!("../template.inx");

/// Interrupt messages to ask Windows for: one for the configuration, and one for each queue pair.
const MESSAGES: u32 = 1 + match crate::keywords::QUEUE_PAIRS.values {
    Values::Range { max, .. } => max,
    Values::OneOf(_) => 0,
};

/// Returns the text of `viordma.inx` for an edition of the driver. Its lines end with `\n`, whatever those of the checkout end with.
///
/// # Errors
/// A sentence that names what the template lacks.
pub fn text(edition: Edition) -> Result<String, String> {
    filled(TEMPLATE, edition)
}

/// Returns `template` with the sections of properties and the strings of an edition in place of the lines that name them.
fn filled(template: &str, edition: Edition) -> Result<String, String> {
    let mut strings = Strings::default();
    let ethernet = section(Section::Ethernet, edition, &mut strings);
    let rdma = section(Section::Rdma, edition, &mut strings);
    let description = match edition {
        Edition::Standard => "",
        Edition::Strict => " (strict)",
    };
    let mut text = template.replace("\r\n", "\n");
    for (placeholder, lines) in [
        ("@ETHERNET@\n", ethernet),
        ("@RDMA@\n", rdma),
        ("@STRINGS@\n", strings.text()),
        ("@EDITION@", description.to_owned()),
        ("@MESSAGES@", MESSAGES.to_string()),
    ] {
        text = replaced(&text, placeholder, &lines)?;
    }
    Ok(text)
}

/// Replaces each occurrence of `from`, of which there must be one.
pub(crate) fn replaced(text: &str, from: &str, to: &str) -> Result<String, String> {
    if text.contains(from) {
        return Ok(text.replace(from, to));
    }
    Err(format!("inf/template.inx has no {from:?}, for which its text is replaced"))
}

/// Writes `viordma.inx` of an edition into `directory`, unless it has this text already.
///
/// # Errors
/// If the template lacks a line, or the file cannot be written.
pub fn write(directory: &Path, edition: Edition) -> io::Result<()> {
    let (path, text) = (directory.join("viordma.inx"), text(edition).map_err(io::Error::other)?);
    if fs::read_to_string(&path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text)
}

/// Texts of `[Strings]` by name. Equal texts of values have one name.
#[derive(Default)]
struct Strings(BTreeMap<String, &'static str>);

impl Strings {
    /// Returns how the INF refers to a text: by a name made of its letters and digits. A number stands for itself.
    fn add(&mut self, prefix: &str, text: &'static str) -> String {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return format!("\"{text}\"");
        }
        let letters: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
        let mut name = format!("{prefix}{letters}");
        // Windows does not tell upper from lower case.
        let is_taken = |name: &str| {
            let mut equal = self.0.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
            equal.any(|(_, other)| *other != text)
        };
        while is_taken(&name) {
            name.push('_');
        }
        self.0.insert(name.clone(), text);
        format!("%{name}%")
    }

    fn text(&self) -> String {
        self.0.iter().fold(String::new(), |mut all, (name, text)| {
            let _ = writeln!(all, "{name} = \"{text}\"");
            all
        })
    }
}

fn section(section: Section, edition: Edition, strings: &mut Strings) -> String {
    PROPERTIES
        .iter()
        .filter(|property| property.section == section && property.is_declared(edition))
        .map(|property| lines(property, strings))
        .collect()
}

/// Returns the lines of a property, and an empty one.
fn lines(property: &Property, strings: &mut Strings) -> String {
    let key = format!(r"HKR, Ndi\params\{}", property.name);
    let label = strings.add("Label", property.label);
    let mut lines = vec![format!("{key}, ParamDesc, 0, {label}")];
    let kind = match property.values {
        Values::OneOf(_) => "enum",
        Values::Range { .. } => property.integer.name(),
    };
    lines.push(format!("{key}, Type, 0, \"{kind}\""));
    lines.push(format!("{key}, Default, 0, \"{}\"", property.default));
    if let Values::Range { min, max } = property.values {
        lines.push(format!("{key}, Min, 0, \"{min}\""));
        lines.push(format!("{key}, Max, 0, \"{max}\""));
        lines.push(format!("{key}, Step, 0, \"1\""));
    }
    lines.push(format!("{key}, Optional, 0, \"0\""));
    if let Values::OneOf(choices) = property.values {
        for choice in choices {
            lines.push(format!("{key}\\enum, \"{}\", 0, {}", choice.value, strings.add("", choice.text)));
        }
    }
    lines.join("\n") + "\n\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_filled_and_ascii() {
        let text = text(Edition::Strict).unwrap();
        assert!(text.is_ascii() && !text.contains('@'));
        assert!(text.contains("HKR, Ndi\\params\\*JumboPacket, Max, 0, \"9230\"\n"));
        assert!(text.contains("HKR, Ndi\\params\\*RSS\\enum, \"1\", 0, %Enabled%\n"));
        assert!(text.contains("MessageNumberLimit, 0x00010001, 17\n"));
        assert_eq!(text.matches("\nEnabled = \"Enabled\"\n").count(), 1);
    }

    #[test]
    fn texts_that_differ_in_case_alone_have_names_of_their_own() {
        let mut strings = Strings::default();
        let names = ["Tx Enabled", "TX enabled", "Tx Enabled"].map(|text| strings.add("", text));
        assert_eq!(names, ["%TxEnabled%", "%TXenabled_%", "%TxEnabled%"]);
    }

    #[test]
    fn a_checkout_whose_lines_end_with_carriage_returns_gives_the_same_text() {
        let template = TEMPLATE.replace("\r\n", "\n").replace('\n', "\r\n");
        assert_eq!(filled(&template, Edition::Standard), text(Edition::Standard));
    }

    #[test]
    fn a_template_without_a_line_to_replace_is_refused_with_its_name() {
        let without = |text: &str| TEMPLATE.replace("\r\n", "\n").replace(text, "");
        for line in ["@ETHERNET@\n", "@RDMA@\n", "@STRINGS@\n", "@EDITION@", "@MESSAGES@"] {
            let error = filled(&without(line), Edition::Standard).unwrap_err();
            assert!(error.contains(line.trim()), "{error}");
        }
    }

    #[test]
    fn settings_for_authors_of_consumers_are_on_the_page_of_the_strict_edition_only() {
        let [standard, strict] = [Edition::Standard, Edition::Strict].map(|edition| text(edition).unwrap());
        assert!(!standard.contains(r"params\Ndk") && !standard.contains("Asynchronous"));
        assert!(strict.contains(r"HKR, Ndi\params\NdkCreateCompletion, Default, 0, "));
    }

    #[test]
    fn a_file_that_is_missing_is_written_and_an_equal_one_is_kept() {
        let directory = std::env::temp_dir().join(format!("viordma-inf-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        write(&directory, Edition::Standard).unwrap();
        let path = directory.join("viordma.inx");
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        write(&directory, Edition::Standard).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), time);
        assert_eq!(fs::read_to_string(&path).unwrap(), text(Edition::Standard).unwrap());
        fs::remove_dir_all(directory).unwrap();
    }
}
