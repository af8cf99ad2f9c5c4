// SPDX-License-Identifier: MIT OR Apache-2.0

//! Percentages on the command line.

use std::str::FromStr;

/// A share between 0 and 1, written as `1%`, `0.5%` or `50`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').unwrap_or(text).trim();
        match number.parse::<f64>() {
            Ok(value) if (0.0..=100.0).contains(&value) => Ok(Self(value / 100.0)),
            _ => Err("a percentage between 0% and 100% is expected".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_parsed_with_and_without_a_sign() {
        assert_eq!("1%".parse(), Ok(Percent(0.01)));
        assert_eq!("0.5%".parse(), Ok(Percent(0.005)));
        assert_eq!("50".parse(), Ok(Percent(0.5)));
    }

    #[test]
    fn other_text_is_not_a_percentage() {
        for text in ["", "%", "-1%", "101%", "nan", "1/2"] {
            assert!(text.parse::<Percent>().is_err(), "{text:?}");
        }
    }
}
