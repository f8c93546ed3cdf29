//! Draws each `NAME.json` of a folder, as the bench scripts write them, as `NAME.svg`: a panel for
//! each workload, in it a bar for each program. It knows nothing of what was measured.
//!
//! Ours are drawn in one colour and all others in grey, from zero on: nobody is cut off.

use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Deserialize;
use std::error::Error;
use std::path::Path;

/// What one run of a bench script found.
#[derive(Deserialize)]
struct Run {
    /// Where and how it was measured, in a line.
    about: String,
    panels: Vec<Panel>,
}

/// One workload.
#[derive(Deserialize)]
struct Panel {
    title: String,
    unit: String,
    bars: Vec<Bar>,
}

/// One program's figure.
#[derive(Deserialize)]
struct Bar {
    name: String,
    value: f64,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: u32 = 760;
const TITLE_HEIGHT: u32 = 30;
const BAR_HEIGHT: u32 = 19;
const PANEL_GAP: u32 = 12;
const ABOUT_HEIGHT: u32 = 24;
/// Where bars begin and end: names stand before them, values behind.
const BARS: (i32, i32) = (230, 660);

const OURS: RGBColor = RGBColor(0x2a, 0x6f, 0xb0);
const OTHERS: RGBColor = RGBColor(0xb4, 0xb8, 0xbd);
const TEXT: RGBColor = RGBColor(0x24, 0x29, 0x2f);

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: cairn-bench-charts FOLDER")?;
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "json") {
            let run: Run = serde_json::from_slice(&std::fs::read(&path)?)
                .map_err(|e| format!("{}: {e}", path.display()))?;
            draw(&run, &path.with_extension("svg"))?;
        }
    }
    Ok(())
}

fn draw(run: &Run, to: &Path) -> Result<(), Box<dyn Error>> {
    let height = |p: &Panel| TITLE_HEIGHT + BAR_HEIGHT * p.bars.len() as u32 + PANEL_GAP;
    let all: u32 = run.panels.iter().map(height).sum();
    let root = SVGBackend::new(to, (WIDTH, all + ABOUT_HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut top = 0;
    for panel in &run.panels {
        draw_panel(&root, panel, top)?;
        top += height(panel) as i32;
    }
    root.draw(&Text::new(run.about.clone(), (12, top + 4), font(12, &TEXT)))?;
    root.present()?;
    Ok(())
}

fn draw_panel(root: &Area, panel: &Panel, top: i32) -> Result<(), Box<dyn Error>> {
    let title = format!("{} ({})", panel.title, panel.unit);
    root.draw(&Text::new(title, (12, top + 10), font(14, &TEXT)))?;
    let most = panel.bars.iter().map(|b| b.value).fold(1.0, f64::max);
    for (n, bar) in panel.bars.iter().enumerate() {
        let y = top + (TITLE_HEIGHT + BAR_HEIGHT * n as u32) as i32;
        let ours = bar.name.starts_with("Cairn");
        let end = BARS.0 + (f64::from(BARS.1 - BARS.0) * bar.value / most).max(1.0) as i32;
        let fill = if ours { OURS } else { OTHERS }.filled();
        root.draw(&Rectangle::new([(BARS.0, y + 2), (end, y + BAR_HEIGHT as i32 - 3)], fill))?;
        let right = plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Right,
            plotters::style::text_anchor::VPos::Top,
        );
        let name = font(13, &TEXT).pos(right);
        root.draw(&Text::new(bar.name.clone(), (BARS.0 - 8, y + 2), name))?;
        root.draw(&Text::new(shown(bar.value), (end + 6, y + 2), font(13, &TEXT)))?;
    }
    Ok(())
}

fn font(size: u32, colour: &RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(colour)
}

/// Thousands apart.
fn shown(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (n, c) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}
