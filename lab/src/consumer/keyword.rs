// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registry values of adapters on the command line.

use std::str::FromStr;

use anyhow::Result;
use viordma_inf::{
    Edition,
    keywords::{NETWORK_ADDRESS, PROPERTIES},
};

use super::assignment::Assignment;
use crate::exit::Exit;

/// `NAME=VALUE`, or `OF:NAME=VALUE` for one adapter.
#[derive(Clone, Debug)]
pub struct KeywordOption {
    /// The name of the adapter or host; all without one.
    pub of: Option<String>,
    pub name: String,
    pub value: String,
}

impl FromStr for KeywordOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A value may have a colon, too.
        let (of, set) = match text.split_once(':').filter(|(of, _)| !of.contains('=')) {
            Some((of, set)) => (Some(of.to_owned()), set),
            None => (None, text),
        };
        let Assignment { name, value } = set.parse()?;
        Ok(Self { of, name, value })
    }
}

impl KeywordOption {
    /// Returns the first edition of viordma that reads the keyword.
    ///
    /// # Errors
    /// With exit code 2, if no edition does.
    pub fn edition(&self) -> Result<Edition> {
        if self.name.eq_ignore_ascii_case(NETWORK_ADDRESS) {
            return Ok(Edition::Standard);
        }
        let found = PROPERTIES.iter().find(|property| property.name.eq_ignore_ascii_case(&self.name));
        found.map(|property| property.edition).ok_or_else(|| {
            let name = &self.name;
            Exit::usage(format!(
                "viordma has no keyword '{name}'; docs/settings.md and docs/strict.md list them"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyword_may_be_that_of_one_adapter() {
        let read = |text: &str| text.parse::<KeywordOption>().map(|read| (read.of, read.name, read.value));
        let of =
            |of: Option<&str>, name: &str, value: &str| Ok((of.map(Into::into), name.into(), value.into()));
        assert_eq!(read("*RSS=1"), of(None, "*RSS", "1"));
        assert_eq!(read("client:VlanID=a:b"), of(Some("client"), "VlanID", "a:b"));
        assert!(read("*RSS").is_err() && read("=1").is_err() && read("client:=1").is_err());
    }

    #[test]
    fn keyword_that_viordma_does_not_read_is_refused() {
        let edition = |text: &str| text.parse::<KeywordOption>().unwrap().edition();
        assert_eq!(edition("*rss=1").unwrap(), Edition::Standard);
        assert_eq!(edition("NetworkAddress=020000000001").unwrap(), Edition::Standard);
        assert_eq!(edition("NdkStrictDelay=50").unwrap(), Edition::Strict);
        let refused = edition("ForcePend=1").unwrap_err().to_string();
        assert!(refused.starts_with("viordma has no keyword 'ForcePend'"), "{refused}");
    }
}
