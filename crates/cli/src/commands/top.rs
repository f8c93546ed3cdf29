//! `cairn top`: a server, live, on a terminal: how full, how busy, how quick. It asks the server's
//! control socket once a second and draws what has changed.

use super::scrub::Scrubbed;
use super::stats::{asked, keep, span, time};
use crate::args::StatsArgs;
use crate::status::{Report, Server, VolumeReport};
use crate::{Failure, Outcome, size};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Gauge, Paragraph, Row, Sparkline, Table};
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);
/// So many past seconds are drawn.
const PAST: usize = 240;
/// The chart is drawn on terminals of so many lines.
const CHART_FROM: u16 = 20;
/// What is told of an operation, and how wide that is.
const COLUMNS: [(&str, u16); 9] = [
    ("operation", 13),
    ("volume", 10),
    ("by", 15),
    ("per s", 7),
    ("errors", 7),
    ("half in", 8),
    ("90 % in", 8),
    ("99 % in", 8),
    ("all in", 8),
];
/// Which of them are given up where there is no room, the first first.
const GIVEN_UP: [usize; 7] = [6, 5, 8, 1, 4, 2, 3];
/// Of a volume, with an empty one behind it.
const VOLUME_LINES: usize = 5;

/// What is shown: the server, and rates since the last look.
struct View {
    server: Server,
    /// Which volume, if only one.
    volume: Option<String>,
    before: Report,
    /// Operations a second, the newest last.
    rates: VecDeque<u64>,
}

/// `cairn top`.
pub fn run(a: &StatsArgs) -> Result<Outcome, Failure> {
    if a.json {
        return super::stats::run(a); // for programs there is no other way to look
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure::Usage("top draws on a terminal; in a pipe: cairn stats".into()));
    }
    // The first one, where there are several: a volume's name chooses another.
    let server = asked(a)?.into_iter().next();
    let server = server.ok_or_else(|| Failure::Failed("no server answers".into()))?;
    let before = server.report.clone();
    let mut view = View { server, volume: a.volume.clone(), before, rates: VecDeque::new() };
    let mut terminal = ratatui::try_init().map_err(|e| format!("the terminal: {e}"))?;
    let ended = watch(&mut view, &mut terminal);
    ratatui::restore();
    ended.map_err(Failure::Failed)?;
    Ok(Outcome::Done)
}

/// Draws until somebody has seen enough. Errors: the server has ended, or the terminal.
fn watch(view: &mut View, terminal: &mut ratatui::DefaultTerminal) -> Result<(), String> {
    loop {
        terminal.draw(|f| view.draw(f)).map_err(|e| format!("the terminal: {e}"))?;
        let until = Instant::now() + EVERY;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if event::poll(left).map_err(|e| e.to_string())?
                && let Event::Key(key) = event::read().map_err(|e| e.to_string())?
            {
                let interrupted =
                    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
                if interrupted || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(());
                }
            }
        }
        view.look()?;
    }
}

/// All that was answered until then.
fn answered(r: &Report) -> u64 {
    r.series.iter().flat_map(|s| &s.operations).map(|o| o.all.count).sum()
}

impl View {
    fn look(&mut self) -> Result<(), String> {
        self.before = self.server.report.clone();
        let pid = self.before.pid;
        self.server.refresh().map_err(|e| format!("the server (process {pid}): {e}"))?;
        if let Some(name) = &self.volume {
            keep(&mut self.server.report, name);
        }
        let more = answered(&self.server.report).saturating_sub(answered(&self.before));
        self.rates.push_back((more as f64 / self.secs()) as u64);
        if self.rates.len() > PAST {
            self.rates.pop_front();
        }
        Ok(())
    }

    /// Between the last two looks.
    fn secs(&self) -> f64 {
        let ms = self.server.report.at_ms.saturating_sub(self.before.at_ms);
        (ms as f64 / 1e3).max(0.001)
    }

    fn draw(&self, f: &mut Frame<'_>) {
        let r = &self.server.report;
        // Where there is no room for all of each, a line has to do.
        let half = usize::from(f.area().height / 2);
        let lines = if r.volumes.len() * VOLUME_LINES > half { 1 } else { VOLUME_LINES };
        let volumes = (r.volumes.len() * lines).min(half) as u16;
        let [head, at, chart, table] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(volumes),
            Constraint::Length(if f.area().height < CHART_FROM { 0 } else { 5 }),
            Constraint::Min(3),
        ])
        .areas(f.area());
        let up = span(r.up_secs as u64);
        let rate = self.rates.back().copied().unwrap_or(0);
        let line = format!("cairn {}, process {}, up for {up}", r.version, r.pid);
        let line = format!("{line}; {rate} operations/s; q quits");
        f.render_widget(Line::from(line).bold(), head);
        let each = r.volumes.iter().map(|_| Constraint::Length(lines as u16));
        let rows = Layout::vertical(each).split(at);
        for (v, at) in r.volumes.iter().zip(rows.iter()) {
            if lines == 1 { volume_line(f, v, *at) } else { volume(f, v, *at) }
        }
        let shown = usize::from(chart.width).min(self.rates.len());
        let rates = self.rates.iter().skip(self.rates.len() - shown);
        let spark = Sparkline::default().data(rates).style(Style::new().fg(Color::Cyan));
        f.render_widget(spark, chart);
        self.operations(f, table);
    }

    /// By how often they are asked for, the most first.
    fn operations(&self, f: &mut Frame<'_>, at: Rect) {
        let before = |s: &stats::SeriesSummary, name: &str| {
            let same = |b: &&stats::SeriesSummary| {
                (&b.front, &b.export, &b.client) == (&s.front, &s.export, &s.client)
            };
            let b = self.before.series.iter().find(same)?;
            b.operations.iter().find(|o| o.operation == name).map(|o| o.all.count)
        };
        let mut rows: Vec<(u64, Vec<String>)> = Vec::new();
        for s in &self.server.report.series {
            let by = if s.client.is_empty() { "its mount" } else { &s.client };
            for o in s.operations.iter().filter(|o| o.recent.count > 0) {
                let more = o.all.count.saturating_sub(before(s, &o.operation).unwrap_or(0));
                let rate = (more as f64 / self.secs()) as u64;
                let times = [o.recent.p50_us, o.recent.p90_us, o.recent.p99_us, o.recent.max_us];
                let mut row = vec![
                    o.operation.to_string(),
                    format!("/{}", s.export),
                    by.to_owned(),
                    rate.to_string(),
                    o.errors.to_string(),
                ];
                row.extend(times.map(time));
                rows.push((rate, row));
            }
        }
        rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let shown = columns(at.width);
        let row = |cells: &[String]| Row::new(shown.iter().map(|n| cells[*n].clone()));
        let head = Row::new(shown.iter().map(|n| COLUMNS[*n].0)).bold();
        let widths = shown.iter().map(|n| Constraint::Length(COLUMNS[*n].1));
        let table = Table::new(rows.iter().map(|(_, cells)| row(cells)), widths);
        f.render_widget(table.header(head), at);
    }
}

/// Those for which there is room.
fn columns(width: u16) -> Vec<usize> {
    let mut all: Vec<usize> = (0..COLUMNS.len()).collect();
    for n in GIVEN_UP {
        let wanted: u16 = all.iter().map(|n| COLUMNS[*n].1 + 1).sum();
        if wanted <= width + 1 {
            break;
        }
        all.retain(|m| *m != n);
    }
    assert_eq!(all[0], 0, "whatever is given up, an operation keeps its name");
    all
}

fn used(v: &VolumeReport) -> u64 {
    v.bytes - v.bytes_free.min(v.bytes)
}

fn share(used: u64, of: u64) -> f64 {
    assert!(used <= of, "{used} of {of} cannot be drawn");
    if of == 0 { 0.0 } else { used as f64 / of as f64 }
}

/// Its name and state, green if that is as it should be.
fn named<'a>(v: &VolumeReport, more: &str) -> Line<'a> {
    let read_only = if v.read_only { ", read-only" } else { "" };
    let line = Line::from(format!("/{}  {}{read_only}  {more}", v.name, v.state));
    if v.state == "ok" { line.green() } else { line.red().bold() }
}

/// All of it in a line.
fn volume_line(f: &mut Frame<'_>, v: &VolumeReport, at: Rect) {
    let percent = 100.0 * share(used(v), v.bytes);
    let more = format!("mode {}, {percent:.0} % of {}", v.mode, size::show(v.bytes));
    f.render_widget(named(v, &more), at);
}

/// How it was opened, what is to be written back, what the checker has done.
fn notes(v: &VolumeReport) -> String {
    let mut all = vec![format!("{} to be written back", size::show(v.dirty_bytes))];
    all.extend(v.operations_a_commit.map(|n| format!("{n:.1} operations a commit")));
    if let Some(o) = v.openings.first() {
        let recovered = o.recovered.as_deref().unwrap_or("closed cleanly before");
        all.push(format!("opened in {} ms, {recovered}", o.took_ms));
    }
    let scrubbed = Scrubbed::of(v);
    if scrubbed.running || scrubbed.passes > 0 {
        all.push(scrubbed.told());
    }
    all.join("; ")
}

/// Three lines of words, and how full it is.
fn volume(f: &mut Frame<'_>, v: &VolumeReport, at: Rect) {
    let [name, promise, full, more] = Layout::vertical([Constraint::Length(1); 4]).areas(at);
    f.render_widget(named(v, &v.image), name);
    f.render_widget(Paragraph::new(format!("mode {}: {}", v.mode, v.promise)), promise);
    f.render_widget(Line::from(notes(v)).dim(), more);
    let used = used(v);
    let parts = [
        (format!("{} of {}", size::show(used), size::show(v.bytes)), share(used, v.bytes)),
        (format!("cache {}", size::show(v.cache.used_bytes)), v.cache.share()),
        (
            v.log.map_or("no log".into(), |l| format!("log {}", size::show(l.used_bytes))),
            v.log.map_or(0.0, |l| l.share()),
        ),
    ];
    let columns = Layout::horizontal([Constraint::Ratio(1, 3); 3]).spacing(1).split(full);
    for ((label, share), at) in parts.into_iter().zip(columns.iter()) {
        let gauge = Gauge::default().ratio(share.clamp(0.0, 1.0)).label(label);
        f.render_widget(gauge.gauge_style(Style::new().fg(Color::Blue)), *at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::{Terminal, backend::TestBackend};

    const REPORT: &str = include_str!("../status/example.json");

    #[test]
    fn columns_are_left_out_before_any_is_cut() {
        assert_eq!(columns(120).len(), 9);
        assert_eq!(columns(80), [0, 1, 2, 3, 4, 7, 8]);
        assert_eq!(columns(40), [0, 3, 7]);
        assert_eq!(columns(10), [0, 7]);
    }

    /// The last line of a terminal of 24 lines must not cost somebody a volume.
    #[test]
    fn many_volumes_have_a_line_each() {
        let mut report: Report = serde_json::from_str(REPORT).expect("it is a report");
        let one = report.volumes[0].clone();
        report.volumes =
            (0..10).map(|n| VolumeReport { name: format!("v{n}"), ..one.clone() }).collect();
        let server = Server::of(report.clone());
        let view = View { server, volume: None, before: report, rates: VecDeque::new() };
        let mut t = Terminal::new(TestBackend::new(80, 24)).expect("in memory");
        t.draw(|f| view.draw(f)).expect("in memory");
        let shown: String = t.backend().buffer().content().iter().map(|c| c.symbol()).collect();
        assert!((0..10).all(|n| shown.contains(&format!("/v{n}  ok"))), "{shown}");
    }

    #[test]
    fn a_server_is_drawn_on_terminals_of_any_size() {
        let report: Report = serde_json::from_str(REPORT).expect("it is a report");
        let server = Server::of(report.clone());
        let rates = (0..500).collect();
        let view = View { server, volume: None, before: report, rates };
        for (width, height) in [(120, 40), (80, 24), (20, 5), (1, 1)] {
            let mut t = Terminal::new(TestBackend::new(width, height)).expect("in memory");
            t.draw(|f| view.draw(f)).expect("in memory");
            let cells = t.backend().buffer().content();
            let shown: String = cells.iter().map(|c| c.symbol()).collect();
            for word in ["/home", "unified", "create", "stopped"] {
                assert!(width < 80 || shown.contains(word), "{word} at {width}x{height}: {shown}");
            }
            let all = shown.contains("closed cleanly before");
            assert!(height < 40 || all, "at {width}x{height}: {shown}");
        }
    }
}
