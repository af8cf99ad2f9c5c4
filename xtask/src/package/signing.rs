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

/// The argument that asks for a test key.
pub const TEST: &str = "test";

/// A key, the folder in which it is used, and, for a test key, lives.
pub struct Signer {
    folder: PathBuf,
    key: PathBuf,
}

impl Signer {
    /// Prepares to sign with a key that is made now, or with the key and the certificates in a PEM file.
    ///
    /// # Errors
    /// With exit code 2: a tool is missing, or the file has no key and certificate.
    pub fn new(key: &str) -> Result<Self> {
        packages::require(&packages::SIGNING)?;
        let folder = shell::root().join(format!("target/package-{}", std::process::id()));
        let signer = Self { key: if key == TEST { folder.join("key.pem") } else { key.into() }, folder };
        if key != TEST {
            let text = fs::read_to_string(key)
                .map_err(|error| Exit::usage(format!("cannot read the key {key}: {error}")))?;
            for part in ["PRIVATE KEY-----", "-----BEGIN CERTIFICATE-----"] {
                if !text.contains(part) {
                    return Err(Exit::usage(format!(
                        "{key} is no PEM file with a private key and its certificate"
                    )));
                }
            }
        }
        private_folder(&signer.folder)?;
        if key == TEST {
            signer.make_test_key()?;
        }
        Ok(signer)
    }

    fn make_test_key(&self) -> Result<()> {
        let certificate = self.folder.join("certificate.pem");
        let mut openssl = Command::new("/usr/bin/openssl");
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
        let mut openssl = Command::new("/usr/bin/openssl");
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

/// Makes a folder that other users cannot read.
fn private_folder(folder: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn osslsigncode(subcommand: &str) -> Command {
    let mut command = Command::new("/usr/bin/osslsigncode");
    command.arg(subcommand);
    command
}
