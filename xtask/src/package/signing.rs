// SPDX-License-Identifier: MIT OR Apache-2.0

//! Signatures of image and catalog, by osslsigncode.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::{catalog, contents::Contents};
use crate::{
    packages,
    shell::{self, Exit},
};

const OPENSSL: &str = "/usr/bin/openssl";

/// The argument that asks for a test key.
pub const TEST: &str = "test";

/// A key, the folder in which it is used, and, for a test key, lives.
pub struct Signer {
    folder: PathBuf,
    key: PathBuf,
    is_test: bool,
}

impl Signer {
    /// Prepares to sign with a key that is made when it is needed, or with the key and the certificates in a PEM file.
    ///
    /// # Errors
    /// With exit code 2: a tool is missing, or the file has no key and certificate.
    pub fn new(key: &str) -> Result<Self> {
        packages::require(&packages::SIGNING)?;
        let folder = shell::root().join(format!("target/package-{}", std::process::id()));
        let is_test = key == TEST;
        if !is_test {
            check_key(Path::new(key))?;
        }
        // Of an interrupted run, whose process had the same number.
        let _ = fs::remove_dir_all(&folder);
        Ok(Self { key: if is_test { folder.join("key.pem") } else { key.into() }, folder, is_test })
    }

    /// Makes the folder, and a test key in it, unless they are there.
    fn prepare(&self) -> Result<()> {
        if self.folder.exists() {
            return Ok(());
        }
        private_folder(&self.folder)?;
        if self.is_test { self.make_test_key() } else { Ok(()) }
    }

    fn make_test_key(&self) -> Result<()> {
        let certificate = self.folder.join("certificate.pem");
        let mut openssl = Command::new(OPENSSL);
        openssl.args(["req", "-x509", "-newkey", "rsa:3072", "-nodes", "-sha256", "-days", "365"]);
        openssl.args(["-subj", "/CN=viordma test signature, do not trust on a production system"]);
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        openssl.args(["-addext", "keyUsage=critical,digitalSignature"]);
        openssl.args(["-addext", "extendedKeyUsage=codeSigning", "-keyout"]).arg(&self.key);
        shell::output(openssl.arg("-out").arg(&certificate))?;
        let text = fs::read_to_string(&self.key)? + &fs::read_to_string(&certificate)?;
        Ok(fs::write(&self.key, text)?)
    }

    /// Signs image and catalog, adds the certificate, and verifies the result. `time` is that of the signatures, in seconds since 1970.
    ///
    /// # Errors
    /// The key does not sign, or a signature is not valid.
    pub fn sign(&self, contents: &mut Contents, time: u64) -> Result<()> {
        self.prepare()?;
        for (extension, pages) in [("sys", &["-ph"][..]), ("cat", &[])] {
            let (unsigned, signed) = (self.folder.join("unsigned"), self.folder.join("signed"));
            fs::write(&unsigned, contents.file(extension)?)?;
            let _ = fs::remove_file(&signed);
            let mut command = osslsigncode("sign");
            command.args(pages).args(["-h", "sha256", "-n", "viordma", "-time", &time.to_string()]);
            command.arg("-certs").arg(&self.key).arg("-key").arg(&self.key);
            shell::output(command.arg("-in").arg(&unsigned).arg("-out").arg(&signed))
                .context("the key does not sign")?;
            contents.files.insert(contents.name(extension), fs::read(&signed)?);
        }
        let mut openssl = Command::new(OPENSSL);
        let certificate = self.folder.join("certificate.der");
        openssl.args(["x509", "-outform", "DER", "-in"]).arg(&self.key).arg("-out").arg(&certificate);
        shell::output(&mut openssl)?;
        contents.files.insert(contents.name("cer"), fs::read(&certificate)?);
        self.verify(contents)
    }

    /// Verifies the signatures of image and catalog, and that the catalog lists image and INF.
    fn verify(&self, contents: &Contents) -> Result<()> {
        let [image, catalog] = [("sys", "image"), ("cat", "catalog")].map(|(extension, name)| {
            let file = self.folder.join(name);
            fs::write(&file, contents.file(extension)?)?;
            anyhow::Ok(file)
        });
        let (image, catalog) = (image?, catalog?);
        let verify = || {
            let mut command = osslsigncode("verify");
            command.arg("-CAfile").arg(&self.key);
            command
        };
        shell::output(verify().arg("-in").arg(&image)).context("the image's signature")?;
        shell::output(verify().arg("-catalog").arg(&catalog).arg("-in").arg(&image))
            .context("the catalog")?;
        catalog::check(contents.file("cat")?, contents)
    }

    /// Checks that a changed byte of image or INF is noticed.
    ///
    /// # Errors
    /// One is not.
    pub fn check_changes(&self, contents: &Contents) -> Result<()> {
        for extension in ["sys", "inf"] {
            let mut changed = contents.clone();
            let data = changed.files.get_mut(&contents.name(extension)).context("a file is missing")?;
            let middle = data.len() / 2;
            data[middle] ^= 1;
            ensure!(self.verify(&changed).is_err(), "a changed byte of the .{extension} is not noticed");
        }
        Ok(())
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Checks that a PEM file has a private key, without a password, and a certificate of that key.
///
/// # Errors
/// With exit code 2: it has not.
fn check_key(file: &Path) -> Result<()> {
    let shown = file.display();
    fs::read(file).map_err(|error| Exit::usage(format!("cannot read the key {shown}: {error}")))?;
    let public = |arguments: &[&str]| {
        let mut openssl = Command::new(OPENSSL);
        shell::output(openssl.args(arguments).arg("-in").arg(file)).ok()
    };
    let key = public(&["pkey", "-pubout", "-passin", "pass:"]);
    let certified = public(&["x509", "-noout", "-pubkey"]);
    if key.is_none() || key != certified {
        return Err(Exit::usage(format!(
            "{shown} is no PEM file with a private key, without a password, and its certificate"
        )));
    }
    Ok(())
}

/// Makes a folder that other users cannot read.
fn private_folder(folder: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn osslsigncode(subcommand: &str) -> Command {
    let mut command = Command::new("/usr/bin/osslsigncode");
    command.arg(subcommand);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a key and its certificate.
    fn key(folder: &Path) -> [String; 2] {
        let files = ["key", "certificate"].map(|name| folder.join(name));
        let mut openssl = Command::new(OPENSSL);
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=test",
        ]);
        openssl.arg("-keyout").arg(&files[0]).arg("-out").arg(&files[1]);
        shell::output(&mut openssl).unwrap();
        files.map(|file| fs::read_to_string(file).unwrap())
    }

    #[test]
    fn a_key_needs_its_certificate_and_both_must_be_readable() {
        let folder = tempfile::tempdir().unwrap();
        let ([one, certificate], [_, other]) = (key(folder.path()), key(folder.path()));
        let file = folder.path().join("signer.pem");
        let check = |text: &str| {
            fs::write(&file, text).unwrap();
            check_key(&file)
        };
        assert!(check(&format!("{one}{certificate}")).is_ok());
        let damaged = certificate.replacen("MI", "AA", 1);
        for text in [&one, &certificate, &format!("{one}{other}"), &format!("{one}{damaged}"), "", "no key"] {
            let error = check(text).unwrap_err();
            assert_eq!(shell::exit_code(&error), 2, "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
