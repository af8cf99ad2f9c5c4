// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{
    misbehavior::Misbehavior,
    plan,
    reasons::Reasons,
    script::{Script, Setup},
    shrink::shrink,
    step::{Act, Side, Step},
};

#[test]
fn text_of_a_script_is_read_back() {
    for seed in 0..200 {
        let script = plan::script(seed, 100);
        let read: Script = script.to_string().parse().unwrap();
        assert_eq!(read, script, "seed {seed}");
    }
}

#[test]
fn scripts_of_two_seeds_differ_and_those_of_one_are_equal() {
    assert_eq!(plan::script(7, 50), plan::script(7, 50));
    assert_ne!(plan::script(7, 50).steps, plan::script(8, 50).steps);
    assert_eq!(plan::script(7, 20).steps, plan::script(7, 50).steps[..20], "fewer steps are the first ones");
}

#[test]
fn scripts_contain_each_kind_of_step() {
    let steps: Vec<_> = (0..50).flat_map(|seed| plan::script(seed, 100).steps).collect();
    let words: std::collections::BTreeSet<_> = steps
        .iter()
        .map(|step| match step {
            Step::On(_, act) => act.to_string(),
            other => other.to_string(),
        })
        .map(|text| text.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(words.len(), 46, "{words:?}");
}

#[test]
fn scripts_are_set_up_with_each_way_to_receive() {
    let setups: Vec<_> = (0..400).map(|seed| plan::script(seed, 1).setup).collect();
    let polls = |setup: &Setup| setup.keywords.iter().any(|(name, _)| name == "*NdisPoll");
    for (pairs, polled) in [(1, false), (1, true), (2, false), (4, true)] {
        assert!(
            setups.iter().any(|setup| setup.pairs == pairs && polls(setup) == polled),
            "{pairs}, {polled}"
        );
    }
    let text = setups.iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("keyword QueuePairs 2") && text.contains("without"));
}

#[test]
fn setups_have_each_number_of_processors_and_each_setting() {
    let setups: Vec<_> = (0..400).map(|seed| plan::script(seed, 1).setup).collect();
    for processors in (1..=16).chain([60]) {
        assert!(setups.iter().any(|setup| setup.processors == processors), "{processors} processors");
    }
    let text = setups.iter().map(ToString::to_string).collect::<String>();
    for line in [
        "mtu 9000",
        "speed 10",
        "command-micros",
        "command-micros 3000000",
        "reset-millis 1500",
        "rss-limits",
        "pairs 8",
        "group-size 3",
        "keyword VlanID 77",
        "keyword *RSS 0",
        "hash-report 7",
        "partial-checksums",
        "header-length 54",
        "segment-size 100",
        "repeats",
        "messages 0",
        "queue-sizes 1024 1024",
        "insists",
        "drops",
        "station 02A0B0C0D0E0",
    ] {
        assert!(text.contains(&format!("\n{line}")), "{line}");
    }
}

#[test]
fn real_time_is_kept_when_a_script_is_shortened() {
    let mut script = plan::script(3, 20);
    script.setup.real_time = true;
    let short = shrink(&script, 1000, |_| true);
    assert_eq!(short.setup, Setup { seed: 3, real_time: true, ..Setup::default() });
    assert!(short.to_string().contains("real-time\n"));
}

#[test]
fn events_need_a_reason_in_the_script_and_resets_one_in_the_log() {
    let fail = [Act::Fail];
    let corrupt = [Act::Misbehave(Misbehavior::Buffers(0, 2))];
    let refused = [Act::Misbehave(Misbehavior::Refused(4))];
    let slow = [Act::Stall(0), Act::QueueResetTime(1500)];
    for (acts, log, is_right) in [
        (&[][..], &[][..], true),
        (&[], &[22, 41], false),
        (&fail, &[22, 41], true),
        (&fail, &[22, 26], false),
        (&fail, &[22, 33, 41], true),
        (&corrupt, &[21, 26], true),
        (&fail, &[41], false),
        (&fail, &[26], false),
        (&fail, &[22, 41, 41], false),
        (&fail, &[21, 41], false),
        (&refused, &[29, 29], true),
        (&refused, &[29, 41], false),
        (&slow, &[32, 42], true),
        (&slow, &[32, 41], false),
        (&[], &[40, 60], true),
        (&[], &[23], false),
    ] {
        let mut reasons = Reasons::new(&Setup::default(), Side::Alpha);
        for act in acts {
            reasons.note(act);
        }
        assert_eq!(reasons.judge(log).is_ok(), is_right, "{acts:?} {log:?}");
    }
    // What was judged is not judged again, and a reason lasts until then.
    let mut reasons = Reasons::new(&Setup::default(), Side::Alpha);
    reasons.note(&Act::Fail);
    reasons.judge(&[22, 41]).unwrap();
    reasons.judge(&[22, 41]).unwrap();
    assert!(reasons.judge(&[22, 41, 22, 41]).is_err());
}

#[test]
fn events_of_a_setup_are_those_of_what_it_sets() {
    let with_keyword = |name: &str, value: &str| {
        let keywords = vec![(name.to_owned(), value.to_owned())];
        Setup { keywords, ..Setup::default() }
    };
    let with_station = |station: &str| Setup { station: station.into(), ..Setup::default() };
    for (setup, of_alpha, of_beta) in [
        (Setup::default(), &[][..], &[][..]),
        (Setup { messages: Some(0), ..Setup::default() }, &[24], &[24]),
        (Setup { command_micros: 2_000_000, reset_millis: 1000, ..Setup::default() }, &[28, 14], &[]),
        (Setup { command_micros: 1_999_999, reset_millis: 999, ..Setup::default() }, &[], &[]),
        (with_keyword("*JumboPacket", "9014"), &[], &[]),
        (with_keyword("*JumboPacket", "9999"), &[48], &[48]),
        (with_station("02A0B0C0D0E0"), &[], &[]),
        (with_station("03A0B0C0D0E0"), &[48], &[]),
    ] {
        for (side, expected) in [(Side::Alpha, of_alpha), (Side::Beta, of_beta)] {
            let may_follow = |event: &u32| Reasons::new(&setup, side).judge(&[*event]).is_ok();
            assert_eq!(
                [24, 48, 28, 14].into_iter().filter(may_follow).collect::<Vec<_>>(),
                expected,
                "{setup}"
            );
        }
    }
}

#[test]
fn lines_that_are_no_steps_are_refused_with_their_number() {
    for text in [
        "jump",
        "alpha jump",
        "gamma restart",
        "wait",
        "later 5 alpha restart",
        "alpha set 0x1 123",
        "alpha link",
        "alpha rss table 2",
        "alpha coalescing on",
        "alpha corrupt receive id-twice",
        "alpha corrupt control 0 id-twice",
        "alpha corrupt transmit 0 id-thrice",
        "alpha commands lost",
    ] {
        let error = format!("seed 1\n{text}").parse::<Script>().unwrap_err();
        assert!(format!("{error:#}").starts_with("line 2: "), "{error:#}");
    }
}

#[test]
fn comments_and_empty_lines_are_left_out() {
    let script: Script = "# why\n\nseed 3 # of it\n\nalpha fail # here\n".parse().unwrap();
    assert_eq!((script.setup.seed, script.steps), (3, vec![Step::On(Side::Alpha, Act::Fail)]));
}

#[test]
fn failing_script_is_reduced_to_the_steps_that_matter() {
    let mut script = plan::script(3, 40);
    script.steps.insert(10, Step::On(Side::Beta, Act::Vanish));
    script.steps.insert(30, Step::Copy(1000));
    let is_wanted = |script: &Script| {
        let vanish = script.steps.iter().position(|step| *step == Step::On(Side::Beta, Act::Vanish));
        let copy = script.steps.iter().rposition(|step| matches!(step, Step::Copy(100..)));
        vanish.zip(copy).is_some_and(|(vanish, copy)| vanish < copy)
    };
    let short = shrink(&script, 1000, is_wanted);
    assert!(matches!(short.steps[..], [Step::On(Side::Beta, Act::Vanish), Step::Copy(100..200)]), "{short}");
    assert!(short.setup.keywords.is_empty() && !short.setup.packed && short.setup.pairs == 1);
    let untouched = shrink(&script, 0, is_wanted);
    assert_eq!(untouched, script);
}
