// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reasons why an image is not loaded.

use std::{fmt, io, path::PathBuf};

/// Why an image cannot be loaded.
#[derive(Debug)]
pub enum LoadError {
    Read(PathBuf, io::Error),
    /// The file is not a PE image, or damaged.
    Format(String),
    /// A PE image that a kernel does not load.
    Refused(String),
    Map(io::Error),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Format(text) => write!(f, "not a well-formed PE image: {text}"),
            Self::Refused(text) => write!(f, "not an image for this kernel: {text}"),
            Self::Map(error) => write!(f, "cannot map the image: {error}"),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<object::Error> for LoadError {
    fn from(error: object::Error) -> Self {
        Self::Format(error.to_string())
    }
}
