// SPDX-License-Identifier: MIT OR Apache-2.0

//! The INF that `viordma.inx` is stamped to: architecture, DriverVer, catalog, names of files. `stampinf` of the WDK does it on Windows.

use crate::{
    Edition,
    inx::{replaced, text},
};

/// Returns the INF of an edition for an architecture (`amd64`, `arm64`), as `stampinf` writes it: `date` is month/day/year, `version`
/// has four numbers. It names the files of the edition.
///
/// # Errors
/// A sentence that names what the template lacks.
pub fn stamped(edition: Edition, architecture: &str, date: &str, version: &str) -> Result<String, String> {
    stamp(&text(edition)?, edition, architecture, date, version)
}

/// Stamps the text of a `viordma.inx`.
fn stamp(
    text: &str,
    edition: Edition,
    architecture: &str,
    date: &str,
    version: &str,
) -> Result<String, String> {
    const LAST: &str = "PnpLockdown = 1\n";
    let entries = format!("{LAST}CatalogFile = viordma.cat\nDriverVer   = {date},{version}\n");
    let text = replaced(text, "$ARCH$", architecture)?;
    let text = replaced(&text, LAST, &entries)?;
    match edition {
        Edition::Standard => Ok(text),
        Edition::Strict => ["sys", "cat"].into_iter().try_fold(text, |text, extension| {
            let [standard, strict] =
                [Edition::Standard, Edition::Strict].map(|edition| format!("{}.{extension}", edition.name()));
            replaced(&text, &standard, &strict)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_a_line_to_replace_is_refused_with_its_name() {
        for line in ["PnpLockdown = 1\n", "$ARCH$"] {
            let text = text(Edition::Standard).unwrap().replace(line, "");
            let error = stamp(&text, Edition::Standard, "amd64", "11/27/2026", "0.1.0.0").unwrap_err();
            assert!(error.contains(line.trim()), "{error}");
        }
    }

    #[test]
    fn a_stamped_inf_has_version_catalog_and_architecture() {
        let text = stamped(Edition::Standard, "amd64", "11/27/2026", "0.1.0.0").unwrap();
        assert!(
            text.contains("PnpLockdown = 1\nCatalogFile = viordma.cat\nDriverVer   = 11/27/2026,0.1.0.0\n")
        );
        assert!(text.contains("NTamd64.10.0...20348") && !text.contains("$ARCH$"));
    }

    #[test]
    fn the_strict_edition_has_its_keywords_and_file_names() {
        let [standard, strict] = [Edition::Standard, Edition::Strict]
            .map(|edition| stamped(edition, "amd64", "11/27/2026", "0.1.0.0").unwrap());
        assert!(!standard.to_lowercase().contains("strict"));
        assert!(strict.contains("with RDMA (strict)\"\n"));
        assert!(strict.contains(r"HKR, Ndi\params\NdkStrictReport, Type, 0,"));
        assert_eq!(strict.matches("viordma-strict.sys").count(), standard.matches("viordma.sys").count());
        assert!(!strict.contains("viordma.sys") && strict.contains("CatalogFile = viordma-strict.cat\n"));
    }
}
