// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the scripts in a package, and of the page that leads to them. PowerShell does not run here: a parser checks their syntax.

use std::{collections::BTreeSet, fs};

use tree_sitter::{Node, Parser};
use viordma_inf::Edition;

use viordma_inf::tracing::{keywords, profile};

use super::{
    contents::{CHECKSUMS, DELIVERED, SBOM, STEPS},
    page,
};
use crate::{shell, wmi};

/// Cmdlets of Windows Server 2022, and functions of the scripts, that scripts and pages may use. The list was not compared with Microsoft's reference.
const CMDLETS: &[&str] = &[
    "Add-Fact",
    "Compress-Archive",
    "ConvertFrom-Json",
    "ConvertTo-Json",
    "Copy-Item",
    "Enable-NetAdapterBinding",
    "Enable-NetAdapterRdma",
    "ForEach-Object",
    "Get-AuthenticodeSignature",
    "Get-ChildItem",
    "Get-CimInstance",
    "Get-Configuration",
    "Get-Content",
    "Get-Counter",
    "Get-Decision",
    "Get-DeviceAdapter",
    "Get-DnsClientServerAddress",
    "Get-FileHash",
    "Get-ItemProperty",
    "Get-NetAdapter",
    "Get-NetAdapterAdvancedProperty",
    "Get-NetAdapterBinding",
    "Get-NetAdapterRdma",
    "Get-NetAdapterRss",
    "Get-NetAdapterStatistics",
    "Get-NetFirewallRule",
    "Get-NetIPAddress",
    "Get-NetIPInterface",
    "Get-NetOffloadGlobalSetting",
    "Get-NetRoute",
    "Get-Part",
    "Get-PfxCertificate",
    "Get-PnpDevice",
    "Get-SmbClientConfiguration",
    "Get-SmbClientNetworkInterface",
    "Get-SmbMultichannelConnection",
    "Get-SmbServerConfiguration",
    "Get-SmbServerNetworkInterface",
    "Get-WinEvent",
    "Get-WindowsDriver",
    "Hide-Name",
    "Import-Certificate",
    "Join-Path",
    "Measure-Event",
    "Measure-Object",
    "Move-Item",
    "New-Item",
    "New-NetIPAddress",
    "New-NetRoute",
    "New-Object",
    "New-SmbShare",
    "Out-File",
    "Out-Null",
    "Out-String",
    "Read-Entry",
    "Remove-Item",
    "Remove-NetIPAddress",
    "Remove-NetRoute",
    "Restart-Computer",
    "Restart-NetAdapter",
    "Save-Part",
    "Select-Object",
    "Select-String",
    "Set-Configuration",
    "Set-DnsClientServerAddress",
    "Set-ExecutionPolicy",
    "Set-NetAdapterAdvancedProperty",
    "Set-NetIPInterface",
    "Set-StrictMode",
    "Split-Path",
    "Start-Sleep",
    "Stop-Run",
    "Test-Adapter",
    "Test-Connection",
    "Test-NetConnection",
    "Test-Path",
    "Test-Ping",
    "Test-Quiet",
    "Where-Object",
    "Write-Entry",
    "Write-Output",
    "Write-Verbose",
    "Write-Warning",
];

/// Programs of Windows.
const PROGRAMS: &[&str] = &[
    "bcdedit",
    "bcdedit.exe",
    "mofcomp.exe",
    "ping.exe",
    "pnputil.exe",
    "tracerpt.exe",
    "verifier.exe",
    "wpr.exe",
];

/// The documents with commands of PowerShell: path and text.
fn pages() -> Vec<(String, String)> {
    let entries = fs::read_dir(shell::root().join("docs")).unwrap();
    let files = entries.map(|entry| format!("docs/{}", entry.unwrap().file_name().display()));
    let texts =
        files.filter(|file| file.strip_suffix(".md").is_some()).map(|file| (file.clone(), read(&file)));
    texts.filter(|(_, text)| text.contains("```powershell")).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(shell::root().join(path)).unwrap()
}

fn scripts() -> impl Iterator<Item = (&'static str, String)> {
    let names = DELIVERED.into_iter().filter(|name| name.strip_suffix(".ps1").is_some());
    names.map(|name| (name, read(&format!("inf/package/{name}"))))
}

/// Calls `visit` with each node of the syntax tree of a text.
fn walk(text: &str, mut visit: impl FnMut(Node)) {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_powershell::LANGUAGE.into()).unwrap();
    let tree = parser.parse(text, None).unwrap();
    let mut pending = vec![tree.root_node()];
    while let Some(node) = pending.pop() {
        visit(node);
        pending.extend((0..node.child_count()).filter_map(|index| node.child(index)));
    }
}

/// Returns the places of syntax errors: line and text.
fn errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    walk(text, |node| {
        if node.is_error() || node.is_missing() {
            let line = text.lines().nth(node.start_position().row).unwrap_or_default();
            errors.push(format!("{}: {line}", node.start_position().row + 1));
        }
    });
    errors
}

/// Returns the names of the commands that a text calls.
fn commands(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    walk(text, |node| {
        let name = &text[node.byte_range()];
        // The parser takes a range of numbers in a loop for a command.
        if node.kind() == "command_name" && !name.starts_with(|first: char| first.is_ascii_digit()) {
            names.insert(name.to_owned());
        }
    });
    names
}

/// Returns the code blocks of a language in a page.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let blocks = page.split(&begin).skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn scripts_are_sound_powershell_for_administrators() {
    for (name, text) in scripts() {
        assert_eq!(errors(&text), [""; 0], "{name}");
        assert!(
            text.is_ascii(),
            "{name}: PowerShell 5.1 reads files without a mark in the system's code page"
        );
        for line in
            ["#Requires -Version 5.1", "#Requires -RunAsAdministrator", "Set-StrictMode -Version Latest"]
        {
            assert!(text.lines().any(|other| other == line), "{name}: {line}");
        }
        assert!(text.contains("No Windows system has run it yet."), "{name}");
        let changes = name != "Test-Viordma.ps1";
        assert_eq!(text.contains("SupportsShouldProcess"), changes, "{name}");
        assert_eq!(text.contains("$PSCmdlet.ShouldProcess("), changes, "{name}");
        let verbs = ["New-", "Remove-", "Set-Net", "Set-Dns", "Import-", "pnputil", "verifier"];
        assert_eq!(
            commands(&text).iter().any(|name| verbs.iter().any(|verb| name.starts_with(verb))),
            changes,
            "{name}"
        );
    }
}

#[test]
fn a_broken_script_is_noticed() {
    let text = read("inf/package/Install-Viordma.ps1");
    assert!(!errors(&text.replacen("{ throw ", "{ throw (", 1)).is_empty());
    assert!(!errors(&text.replacen("foreach (", "foreach ((", 1)).is_empty());
}

/// Returns the variables that a script reads and has not set anywhere, which ends a script in strict mode.
fn unset_variables(text: &str) -> BTreeSet<String> {
    const OF_POWERSHELL: [&str; 8] = [
        "$_",
        "$null",
        "$true",
        "$false",
        "$pscmdlet",
        "$psscriptroot",
        "$lastexitcode",
        "$whatifpreference",
    ];
    let lower = text.to_lowercase();
    let is_set = |name: &str| {
        let is_assigned = [format!("{name} = "), format!("({name} in "), format!("]{name}")];
        let is_parameter = [format!("param({name},"), format!(", {name})"), format!("param({name})")];
        is_assigned.iter().chain(&is_parameter).any(|text| lower.contains(text))
    };
    let mut unset = BTreeSet::new();
    walk(text, |node| {
        let name = text[node.byte_range()].to_lowercase().replace(['{', '}'], "");
        if ["variable", "braced_variable"].contains(&node.kind())
            && !name.starts_with("$env:")
            && !OF_POWERSHELL.contains(&&*name)
            && !is_set(&name)
        {
            unset.insert(name);
        }
    });
    unset
}

#[test]
fn scripts_set_the_variables_that_they_read() {
    for (name, text) in scripts() {
        assert_eq!(unset_variables(&text), BTreeSet::new(), "{name}");
    }
    let script = read("inf/package/Move-AdapterAddress.ps1");
    assert!(unset_variables(&script.replace("$parts = ", "$part = ")).contains("$parts"));
}

#[test]
fn scripts_and_page_call_known_commands() {
    let pages = pages().into_iter().map(|(_, text)| blocks(&text, "powershell").concat());
    let texts = scripts().map(|(_, text)| text).chain(pages);
    for command in texts.flat_map(|text| commands(&text)) {
        let is_own = DELIVERED.iter().any(|name| command == format!(".\\{name}"));
        assert!(is_own || CMDLETS.contains(&&*command) || PROGRAMS.contains(&&*command), "{command}");
    }
}

/// Returns whether each call of a command depends on no condition that has a text.
fn is_independent(script: &str, command: &str, condition: &str) -> bool {
    let (mut calls, mut dependent) = (0, 0);
    walk(script, |node| {
        let text = |node: Node| script.get(node.byte_range()).unwrap_or_default();
        if node.kind() != "command" || !text(node).starts_with(command) {
            return;
        }
        calls += 1;
        let parents = std::iter::successors(node.parent(), Node::parent);
        let mut conditions = parents.filter(|parent| parent.kind() == "if_statement").map(text);
        let holds = |statement: &str| statement.split('{').next().is_some_and(|it| it.contains(condition));
        dependent += usize::from(conditions.any(holds));
    });
    calls > 0 && dependent == 0
}

/// An upgrade: viordma runs the adapter, and the package has another driver, signed with another test key.
#[test]
fn a_package_is_installed_where_viordma_runs_already() {
    let script = read("inf/package/Install-Viordma.ps1");
    for command in ["pnputil.exe /add-driver", "Import-Certificate"] {
        assert!(is_independent(&script, command, "DriverFileName"), "{command}");
    }
}

/// The place of a text that a script has once.
fn place(script: &str, text: &str) -> usize {
    assert_eq!(script.matches(text).count(), 1, "{text}");
    script.find(text).unwrap()
}

/// The steps of the model in `address_runs.rs`.
#[test]
fn addresses_are_saved_before_a_driver_changes_and_are_pending_until_they_are_set() {
    for (name, change) in [
        ("Install-Viordma.ps1", "pnputil.exe /add-driver"),
        ("Uninstall-Viordma.ps1", "pnputil.exe /delete-driver"),
    ] {
        let script = read(&format!("inf/package/{name}"));
        let places = ["& $addresses -Save", change, "& $addresses -Restore"].map(|text| place(&script, text));
        assert!(places.is_sorted(), "{name}: {places:?}");
        for command in commands(&script) {
            assert!(
                !["NetIP", "NetRoute", "DnsClient"].iter().any(|part| command.contains(part)),
                "{name}: {command}"
            );
        }
    }
    let script = read("inf/package/Move-AdapterAddress.ps1");
    let (save, restore) = script.split_once("\n$pending = @(").expect("it restores");
    let (_, save) = save.split_once("\nif ($Save) {").expect("it saves");
    assert!(save.contains("-eq 'keep'") && place(save, "Write-Entry $present") > place(save, "-eq 'keep'"));
    let places = [
        "Read-Entry | Where-Object { $_.State -eq 'pending'",
        "Set-Configuration $entry",
        "$entry.State = 'restored'",
        "Write-Entry $entry",
    ];
    assert!(places.map(|text| place(restore, text)).is_sorted());
    // A run after an interrupted one, and an upgrade that keeps the connection: what is set already is no error.
    for (new, list) in [("New-NetIPAddress", "$Entry.Addresses"), ("New-NetRoute", "$Entry.Routes")] {
        let (_, part) = script.split_once(&format!("in {list}) {{")).expect("it goes through the list");
        assert!(
            place(part.split_once("\n    }").unwrap().0, "-in $own) { continue }") < place(part, new),
            "{new}"
        );
    }
    // IPv6 addresses that are set by hand must not turn DHCP of IPv4 off.
    assert!(!is_independent(&script, "Set-NetIPInterface", "$Entry.Dhcp -ne $Present.Dhcp"));
    assert!(script.contains("-AddressFamily IPv4 -Dhcp $Entry.Dhcp"));
}

/// The archive may be sent to others: who has sequence numbers can forge packets.
#[test]
fn the_report_records_the_profile_without_sequence_numbers() {
    let script = read("inf/package/Save-ViordmaReport.ps1");
    let start = script.lines().find(|line| line.contains("wpr.exe -start")).expect("it records");
    assert!(start.contains(&format!("'{}')!", profile::FILE)), "{start}");
    let name = start.split(")!").nth(1).and_then(|rest| rest.split('"').next()).expect("a profile");
    let text = profile::text();
    let (_, provider) =
        text.split_once(&format!("<EventProvider Id=\"{name}.Provider\"")).expect("it is of the file");
    let keyword = provider.split("<Keyword Value=\"").nth(1).and_then(|rest| rest.split('"').next());
    assert_eq!(keyword, Some(&*format!("{:#x}", keywords::ORDINARY)), "{name}");
    assert!(
        script.contains("wpr.exe -stop $recorded") && script.contains("Remove-Item -LiteralPath $recorded")
    );
}

/// A reader who follows the page finds what it names.
#[test]
fn files_and_parameters_of_the_page_are_those_of_the_package() {
    let mut files: Vec<String> = DELIVERED.map(str::to_owned).to_vec();
    files.extend([CHECKSUMS, SBOM, STEPS, profile::FILE, wmi::FILE, "LICENSES.txt"].map(str::to_owned));
    files.extend(
        ["sys", "inf", "cat", "pdb", "cer"]
            .map(|extension| format!("{}.{extension}", Edition::Standard.name())),
    );
    for page in page::PAGES {
        for name in page::files(&read(page)) {
            assert!(files.contains(&name), "{page}: {name}");
        }
    }
    for (page, text) in pages() {
        for line in blocks(&text, "powershell").iter().flat_map(|block| block.lines()) {
            let Some(call) = line.strip_prefix(".\\") else { continue };
            let (name, arguments) = call.split_once(' ').unwrap_or((call, ""));
            let script = read(&format!("inf/package/{name}"));
            for argument in arguments.split(' ').filter_map(|argument| argument.strip_prefix('-')) {
                let is_common = argument == "WhatIf" && script.contains("SupportsShouldProcess");
                assert!(is_common || script.contains(&format!("]${argument}")), "{page}: {name} -{argument}");
            }
        }
    }
    let delivered = read("inf/package/README.md");
    for file in files.iter().filter(|file| *file != "README.md") {
        assert!(delivered.contains(file.as_str()), "README.md does not explain {file}");
    }
}
