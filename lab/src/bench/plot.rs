// SPDX-License-Identifier: MIT OR Apache-2.0

//! Charts of the figures: SVG files for the documentation.

use std::{fs, ops::Range, path::Path, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use plotters::{
    coord::{
        ranged1d::{AsRangedCoord, ValueFormatter},
        types::RangedCoordf64,
    },
    prelude::*,
};
use roce_testkit::{
    Bursts,
    goodput::{self, Cell, Kind},
};
use roce_wire::icrc::{Crc, CrcState};

use super::{figure::rate_of, scale};

/// The files that [`draw`] writes.
pub const FILES: [&str; 3] = ["queue-pairs.svg", "crc.svg", "goodput.svg"];
/// Size of each chart in pixels.
const SIZE: (u32, u32) = (760, 440);
const FONT: &str = "sans-serif";
/// Palette by Okabe and Ito, distinguishable with color vision deficiency.
const COLORS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];
/// Measuring time of each point of the CRC chart.
const CRC_TIME: Duration = Duration::from_millis(60);

/// A line of a chart.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Title, axes and legend of a chart.
struct Chart<'a> {
    title: &'a str,
    x: &'a str,
    y: &'a str,
    /// Position of the legend.
    legend: SeriesLabelPosition,
}

/// Draws all charts into `directory`, which is created if it does not exist.
pub fn draw(directory: &Path, points: &[scale::Point], say: &impl Fn(String)) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let [queue_pairs, crc_rates, goodput] = FILES.map(|name| directory.join(name));
    over_queue_pairs(&queue_pairs, points)?;
    say("plot: CRC implementations".into());
    crc(&crc_rates)?;
    say("plot: goodput over loss".into());
    goodput_over_loss(&goodput)
}

/// Draws the cost of a packet over the number of connected queue pairs.
fn over_queue_pairs(path: &Path, points: &[scale::Point]) -> Result<()> {
    let line = |name: &str, cost: fn(&scale::Point) -> f64| Line {
        name: name.into(),
        points: points.iter().map(|point| (point.queue_pairs as f64, cost(point))).collect(),
    };
    let lines = [
        line(&format!("at most {} of them busy", scale::BUSY), |point| point.few),
        line("all busy, one message each in turn", |point| point.all),
    ];
    let options = Chart {
        title: "Cost of a packet: 64-byte SENDs, both sides on one core",
        x: "connected queue pairs",
        y: "ns per packet",
        legend: SeriesLabelPosition::UpperLeft,
    };
    let x = (0.8..1.3 * highest(&lines, |(x, _)| x)).log_scale();
    options.draw(path, x, &lines, |x| format!("{x}"))
}

/// Draws the throughput of each CRC implementation over the length of the data.
fn crc(path: &Path) -> Result<()> {
    let data = vec![0x5A; 1 << 16];
    let lengths: Vec<usize> = (4..=16).map(|bits| 1 << bits).collect();
    let line = |name: &str, crc: &dyn Fn(&[u8]) -> u32| Line {
        name: name.into(),
        points: lengths
            .iter()
            .map(|&length| {
                let rate = rate_of(CRC_TIME, || {
                    for _ in 0..64 {
                        std::hint::black_box(crc(std::hint::black_box(&data[..length])));
                    }
                    64.0 * length as f64
                });
                (length as f64, rate / f64::from(1 << 30))
            })
            .collect(),
    };
    let own = |crc: Crc| move |bytes: &[u8]| crc.update(CrcState::START, bytes).value();
    let mut lines = Vec::new();
    if let Some(crc) = Crc::clmul() {
        lines.push(line("carry-less multiplication, SSE registers", &own(crc)));
    }
    lines.push(line("tables", &own(Crc::table())));
    let options = Chart {
        title: "The engine's CRC",
        x: "bytes per call",
        y: "GiB/s",
        legend: SeriesLabelPosition::MiddleRight,
    };
    options.draw(path, (14.0..80_000.0).log_scale(), &lines, |x| format!("{x}"))
}

/// Draws goodput over loss for several round-trip times.
fn goodput_over_loss(path: &Path) -> Result<()> {
    let cell = Cell {
        kind: Kind::Write,
        message: 64 << 10,
        count: 512,
        outstanding: 8,
        loss: 0,
        bursts: None,
        reordering: 0,
        round_trip: Duration::from_micros(100),
        seed: 1,
    };
    let line = |name: String, cell: &dyn Fn(u32) -> Cell| Line {
        name,
        points: [0, 1, 2, 5, 10, 20, 50]
            .map(|loss| (f64::from(loss) / 10.0, goodput::measure(&cell(loss)).goodput() * 8.0 / 1e9))
            .into(),
    };
    let mut lines: Vec<_> = [20, 100, 1000]
        .map(|micros| {
            let round_trip = Duration::from_micros(micros);
            line(format!("round trip {micros} us"), &|loss| Cell { loss, round_trip, ..cell })
        })
        .into();
    let bursts = |loss| Cell { bursts: Some(Bursts::of_mean(8, loss)), ..cell };
    lines.push(line("100 us, lost in bursts of 8 frames".into(), &bursts));
    let small = |loss| Cell { kind: Kind::Send, message: 4096, count: 4096, outstanding: 64, loss, ..cell };
    lines.push(line("100 us, 64 SENDs of 4 KiB instead".into(), &small));
    let options = Chart {
        title: "WRITEs of 64 KiB over a line of 10 Gbit/s, path MTU 1024",
        x: "frames lost in either direction, %",
        y: "Gbit/s",
        legend: SeriesLabelPosition::UpperRight,
    };
    options.draw(path, RangedCoordf64::from(-0.1..5.2), &lines, |x| format!("{x:.1}"))
}

fn highest(lines: &[Line], of: impl Fn((f64, f64)) -> f64) -> f64 {
    lines.iter().flat_map(|line| &line.points).map(|&point| of(point)).fold(0.0, f64::max)
}

impl Chart<'_> {
    fn draw<X>(&self, path: &Path, x: X, lines: &[Line], label: impl Fn(&f64) -> String) -> Result<()>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
    {
        let y: Range<f64> = 0.0..1.15 * highest(lines, |(_, y)| y);
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        let drawn = (|| {
            root.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&root)
                .caption(self.title, (FONT, 18))
                .margin(14)
                .x_label_area_size(46)
                .y_label_area_size(62)
                .build_cartesian_2d(x, y)?;
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(BLACK.mix(0.12))
                .axis_desc_style((FONT, 15))
                .label_style((FONT, 13))
                .x_desc(self.x)
                .y_desc(self.y)
                .x_label_formatter(&label)
                .y_label_formatter(&|y| format!("{y}"))
                .draw()?;
            for (line, color) in lines.iter().zip(COLORS) {
                chart
                    .draw_series(LineSeries::new(line.points.iter().copied(), color.stroke_width(2)))?
                    .label(&line.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
                let dots = line.points.iter().map(|&point| Circle::new(point, 3, color.filled()));
                chart.draw_series(dots)?;
            }
            chart
                .configure_series_labels()
                .position(self.legend.clone())
                .background_style(WHITE.mix(0.85))
                .border_style(BLACK.mix(0.3))
                .label_font((FONT, 14))
                .draw()?;
            root.present()
        })();
        drawn.map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
    }
}
