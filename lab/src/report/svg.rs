// SPDX-License-Identifier: MIT OR Apache-2.0

//! Charts as inline SVG. Colors are CSS variables of the page, so that they fit light and dark.

use std::{fmt::Write as _, time::Duration};

use super::timeline::Row;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;
/// Height of a row of the packet ladder.
const STEP: f64 = 30.0;

/// Values at equal distances along the x axis, drawn as bars.
pub struct Bars<'a> {
    pub values: &'a [f64],
    /// CSS class of the bars.
    pub class: &'a str,
    pub x_label: &'a str,
    pub y_label: &'a str,
    /// Labels of the x axis: position from 0 to 1, and text.
    pub ticks: &'a [(f64, String)],
}

/// Draws bars with axes.
pub fn bars(chart: &Bars<'_>) -> String {
    let (inner, tall) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let most = ceiling(chart.values.iter().copied().fold(0.0, f64::max));
    let mut out = format!("<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{}'>", chart.y_label);
    for step in 0..=4 {
        let (value, y) = (most * f64::from(step) / 4.0, TOP + tall * (1.0 - f64::from(step) / 4.0));
        let _ = write!(
            out,
            "<line class='grid' x1='{LEFT}' x2='{}' y1='{y:.1}' y2='{y:.1}'/><text class='tick' text-anchor='end' x='{}' y='{:.1}'>{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            number(value)
        );
    }
    let wide = inner / chart.values.len().max(1) as f64;
    for (at, value) in chart.values.iter().enumerate().filter(|(_, value)| **value > 0.0) {
        let high = (tall * value / most).max(1.0);
        let _ = write!(
            out,
            "<rect class='{}' x='{:.2}' y='{:.2}' width='{:.2}' height='{high:.2}'><title>{}</title></rect>",
            chart.class,
            LEFT + wide * at as f64,
            TOP + tall - high,
            (wide - 0.6).max(0.8),
            number(*value)
        );
    }
    for (position, text) in chart.ticks {
        let x = LEFT + inner * position;
        let _ = write!(
            out,
            "<line class='axis' x1='{x:.1}' x2='{x:.1}' y1='{}' y2='{}'/><text class='tick' text-anchor='middle' x='{x:.1}' y='{}'>{text}</text>",
            TOP + tall,
            TOP + tall + 4.0,
            TOP + tall + 18.0
        );
    }
    let _ = write!(
        out,
        "<line class='axis' x1='{LEFT}' x2='{}' y1='{y}' y2='{y}'/><text class='label' text-anchor='middle' x='{}' y='{}'>{}</text><text class='label' text-anchor='middle' transform='translate(14 {}) rotate(-90)'>{}</text></svg>",
        WIDTH - RIGHT,
        LEFT + inner / 2.0,
        HEIGHT - 8.0,
        chart.x_label,
        TOP + tall / 2.0,
        chart.y_label,
        y = TOP + tall
    );
    out
}

/// Draws frames as arrows between the two hosts, oldest at the top.
pub fn ladder(rows: &[Row]) -> String {
    let (left, right) = (190.0, WIDTH - 60.0);
    let gaps = rows.windows(2).filter(|pair| pair[1].number > pair[0].number + 1).count();
    let height = 50.0 + STEP * (rows.len() + gaps + 1) as f64;
    let mut out = format!("<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='packet ladder'>");
    for (x, name) in [(left, "alpha (copies)"), (right, "beta (serves)")] {
        let _ = write!(
            out,
            "<text class='label' text-anchor='middle' x='{x}' y='18'>{name}</text><line class='axis' x1='{x}' x2='{x}' y1='28' y2='{height}'/>"
        );
    }
    let mut y = 40.0;
    let mut before: Option<&Row> = None;
    for row in rows {
        if let Some(skipped) =
            before.map(|before| row.number - before.number - 1).filter(|skipped| *skipped > 0)
        {
            y += STEP;
            let _ = write!(
                out,
                "<text class='tick' text-anchor='middle' x='{}' y='{:.1}'>… {skipped} frames …</text>",
                f64::midpoint(left, right),
                y - 4.0
            );
        }
        y += STEP;
        let (from, to) = if row.to_peer { (left, right) } else { (right, left) };
        let sign = if row.to_peer { -1.0 } else { 1.0 };
        let end = if row.is_lost { f64::midpoint(from, to) } else { to };
        let class = if row.is_lost {
            "lost"
        } else if row.is_resent {
            "resent"
        } else {
            "frame"
        };
        let note = match (row.is_resent, row.is_lost) {
            (true, true) => " (sent again, lost)",
            (true, false) => " (sent again)",
            (false, true) => " (lost)",
            (false, false) => "",
        };
        let _ = write!(
            out,
            "<text class='tick' text-anchor='end' x='{}' y='{:.1}'>{}</text><text class='name {class}-text' text-anchor='middle' x='{}' y='{:.1}'>{}{note}</text><line class='{class}' x1='{from}' x2='{end}' y1='{y}' y2='{y}'/>",
            left - 12.0,
            y + 4.0,
            milliseconds(row.time),
            f64::midpoint(left, right),
            y - 5.0,
            escaped(&row.label)
        );
        let mark = if row.is_lost {
            format!("<path class='lost' d='M{} {} l8 8 m-8 0 l8 -8'/>", end - 4.0, y - 4.0)
        } else {
            format!("<path class='{class}-head' d='M{end} {y} l{} -4 v8 z'/>", sign * 9.0)
        };
        out += &mark;
        before = Some(row);
    }
    out + "</svg>"
}

/// The smallest of 1, 2 and 5 times a power of ten that is no less than `value`.
fn ceiling(value: f64) -> f64 {
    let value = value.max(1e-9);
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= value)
        .unwrap_or(value)
}

fn number(value: f64) -> String {
    if value >= 10.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// A duration in milliseconds, with as many digits as are of use.
pub fn milliseconds(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

/// Escapes text for HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&#39;")
        .replace('"', "&quot;")
}
