// SPDX-License-Identifier: MIT OR Apache-2.0

//! The image with several queue pairs and processors on threads that race in real time, under the verifier. The scripts are those of
//! `cargo xtask spin`; the order of events differs from run to run.

use std::fmt::Write as _;

use lab::{
    images,
    spin::{run, script::Script},
};

fn play(text: &str) -> Option<run::Summary> {
    let script: Script =
        format!("real-time\nprocessors 4\npairs 4\npath-mtu 1024\n{text}").parse().expect("a script");
    let played = run::run(&images()?, &script);
    Some(played.unwrap_or_else(|error| panic!("{script}\n{error:#}")))
}

#[test]
fn rdma_and_tcp_go_on_while_received_frames_move_between_processors() {
    for format in ["", "packed", "keyword *NdisPoll 1"] {
        let mut script = format!("{format}\ntcp 2000000\ncopy 2000000\ncopy 1000000\n");
        for number in 0..40 {
            let act = [
                "rss 4",
                "rss table 3 7",
                "rss key 9",
                "rss 1",
                "rss default 2",
                "rss 0",
                "coalescing off on",
                "coalescing on on",
            ][number % 8];
            let side = if number % 3 == 0 { "beta" } else { "alpha" };
            writeln!(
                script,
                "later {} {side} {act}\nlater {} {side} frames 20 900",
                number * 5000,
                number * 4000
            )
            .unwrap();
        }
        script += "wait 250000\ncheck";
        let Some(summary) = play(&script) else { return };
        assert_eq!((summary.skipped, summary.lost), (0, 0));
    }
}

#[test]
fn adapters_restart_sleep_and_lose_their_device_beside_traffic() {
    let mut script = String::new();
    for act in [
        "restart",
        "sleep\nalpha wake",
        "reenable",
        "fail",
        "corrupt receive 1 id-out-of-range",
        "rdma off",
        "remove",
    ] {
        write!(
            script,
            "tcp 300000\ncopy 300000\nalpha rss 4\nalpha frames 200 1400\nbeta frames 200 1400\nlater 500 alpha rss 2
            wait 2000\nalpha {act}\ncheck\n"
        )
        .unwrap();
    }
    let Some(summary) = play(&script) else { return };
    assert_eq!(summary.checks, 8);
}
