// SPDX-License-Identifier: MIT OR Apache-2.0

//! The architectures that an image is built for, and their names in each tool.

/// An architecture of Windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Architecture {
    #[default]
    X64,
    Arm64,
}

impl Architecture {
    /// Returns the target of rustc.
    pub const fn target(self) -> &'static str {
        match self {
            Self::X64 => "x86_64-pc-windows-msvc",
            Self::Arm64 => "aarch64-pc-windows-msvc",
        }
    }

    /// Returns the name that the kit gives its folders, and that packages carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X64 => "x64",
            Self::Arm64 => "arm64",
        }
    }

    /// Returns the name in an INF.
    pub const fn inf(self) -> &'static str {
        match self {
            Self::X64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Returns the machine of `llvm-dlltool`.
    pub const fn dlltool(self) -> &'static str {
        match self {
            Self::X64 => "i386:x86-64",
            Self::Arm64 => "arm64",
        }
    }

    /// Returns the target of clang that understands MinGW's headers.
    pub const fn clang(self) -> &'static str {
        match self {
            Self::X64 => "x86_64-w64-mingw32",
            Self::Arm64 => "aarch64-w64-mingw32",
        }
    }

    /// Returns the folder of the repository's `target` that the images of the architecture are in.
    pub const fn images(self) -> &'static str {
        match self {
            Self::X64 => "target/image",
            Self::Arm64 => "target/image/arm64",
        }
    }
}
