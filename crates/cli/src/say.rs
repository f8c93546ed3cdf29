//! What is said to whoever started the command: lines on its standard streams, and the log. Nobody
//! need be there to hear it: a reader that went away does not stop a server, and one in the
//! background tells the system's log. It knows no command.

use crate::args::LogFormat;
use host::{Stream, let_go, system_log};
use std::io::{IsTerminal, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::field::Field;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

static IN_BACKGROUND: AtomicBool = AtomicBool::new(false);
/// What standard output did not take.
static UNTOLD: OnceLock<std::io::Error> = OnceLock::new();

/// A line of a command's answer on standard output, as std's `println!`, which ends the program
/// where that cannot be written: a command goes on with what it does, and fails at its end.
macro_rules! tell {
    ($($of:tt)*) => { $crate::say::tell(format_args!($($of)*)) };
}

/// See `tell!`.
pub fn tell(line: std::fmt::Arguments<'_>) {
    if UNTOLD.get().is_none() {
        let mut to = std::io::stdout().lock();
        if let Err(e) = writeln!(to, "{line}").and_then(|()| to.flush()) {
            let _ = UNTOLD.set(e);
        }
    }
}

/// Was all told? A reader that has gone away has heard enough.
pub fn all_told() -> Result<(), String> {
    match UNTOLD.get() {
        Some(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("standard output: {e}"))
        }
        _ => Ok(()),
    }
}

/// A line on standard output.
pub fn out(line: &str) {
    let mut to = std::io::stdout().lock();
    let _ = writeln!(to, "{line}").and_then(|()| to.flush());
}

/// A line on standard error. It may name what others have named, so nothing in it is obeyed by a
/// terminal.
pub fn err(line: &str) {
    let _ = Errors.write_all(format!("{}\n", one(&plain(line))).as_bytes());
}

/// The same for people: without the system's numbers of errors, which stand beside their words, and
/// with what is to be done about a mount whose server was killed.
fn plain(line: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut all = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once(NUMBER) {
        let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
        let is_number = digits > 0 && behind[digits..].starts_with(')');
        all.push_str(before);
        if !is_number {
            all.push_str(NUMBER);
        }
        rest = if is_number { &behind[digits + 1..] } else { behind };
    }
    all.push_str(rest);
    const DEAD: &str = "Transport endpoint is not connected";
    all.replace(DEAD, "the server of this mount has ended: fusermount3 -u takes the mount away")
}

/// Controls as escapes.
fn one(line: &str) -> String {
    let mut all = String::with_capacity(line.len());
    for c in line.chars() {
        if c.is_control() { all.extend(c.escape_debug()) } else { all.push(c) }
    }
    all
}

/// Standard error, or the system's log. Writing to it never fails.
struct Errors;

impl std::io::Write for Errors {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if IN_BACKGROUND.load(Ordering::Relaxed) {
            system_log(&String::from_utf8_lossy(bytes));
        } else {
            let _ = std::io::stderr().write_all(bytes);
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// From now on nobody looks; `last` is still told on standard output.
pub fn go_to_background(last: &str) -> std::io::Result<()> {
    IN_BACKGROUND.store(true, Ordering::Relaxed);
    let_go(Stream::Error)?;
    out(last);
    let_go(Stream::Output)
}

/// Starts the log: -v and RUST_LOG say how much of it, or `quiet` where nobody does.
/// Errors: there is no journal.
pub fn start_log(verbose: u8, format: LogFormat, quiet: &str) -> Result<(), String> {
    use tracing_subscriber::prelude::*;
    use tracing_subscriber::{EnvFilter, registry};
    let level = match verbose {
        0 => quiet,
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    if format == LogFormat::Journald {
        let journal = tracing_journald::layer().map_err(|e| {
            format!("--log-format journald: systemd's journal cannot be reached: {e}")
        })?;
        registry().with(filter).with(journal.with_syslog_identifier("cairn".into())).init();
        return Ok(());
    }
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Errors);
    match format {
        LogFormat::Text => {
            let fields = debug_fn(text_field).delimited(" ");
            let log = log.fmt_fields(fields);
            log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init();
        }
        _ => {
            let log = log.json().flatten_event(true).with_current_span(false);
            log.map_event_format(OfVolume).init();
        }
    }
    Ok(())
}

/// A field of a line for people; its message begins with the volume's name, where several are
/// served.
fn text_field(to: &mut Writer<'_>, field: &Field, value: &dyn std::fmt::Debug) -> std::fmt::Result {
    match (field.name(), env::inside_of()) {
        ("message", "") => write!(to, "{value:?}"),
        ("message", volume) => write!(to, "{volume}: {value:?}"),
        (name, _) => write!(to, "{name}={value:?}"),
    }
}

/// Lines for programs, which have that name as a field of its own.
struct OfVolume<F>(F);

impl<S, N, F> FormatEvent<S, N> for OfVolume<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let volume = env::inside_of();
        if volume.is_empty() {
            return self.0.format_event(context, to, event);
        }
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        match line.strip_prefix('{') {
            Some(rest) => write!(to, "{{\"volume\":{},{rest}", serde_json::Value::from(volume)),
            None => to.write_str(&line),
        }
    }
}

/// An error of the arguments in one line, from clap's several: what is wrong, and tips; how a
/// command is used is what --help is for.
pub fn one_line(error: &str) -> String {
    // That a value may begin with a dash helps nobody who has misspelt an option.
    let known = |p: &&str| {
        let useless = ["Usage:", "For more information", "tip: to pass '"];
        !useless.iter().any(|u| p.starts_with(u))
    };
    let words = |p: &str| p.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts: Vec<String> =
        error.trim().split("\n\n").map(str::trim).filter(known).map(words).collect();
    let all = parts.join("; ");
    format!("{} (--help tells what there is)", all.strip_prefix("error: ").unwrap_or(&all))
}

#[cfg(test)]
mod tests {
    use super::{one, one_line, plain};

    #[test]
    fn errors_have_no_numbers_and_a_dead_mount_has_a_remedy() {
        assert_eq!(plain("a: No such file (os error 2): b"), "a: No such file: b");
        assert_eq!(plain("(os error x) (os error 5)"), "(os error x)");
        assert_eq!(plain("x (os error y"), "x (os error y");
        let dead = plain("/m: Transport endpoint is not connected (os error 107)");
        assert!(
            dead.starts_with("/m: the server of this mount has ended: fusermount3 -u"),
            "{dead}"
        );
    }

    #[test]
    fn a_line_stays_one_and_moves_nothing() {
        assert_eq!(one("a\nb\x1b[2J\u{9b}c\\d 'é'"), r"a\nb\u{1b}[2J\u{9b}c\d 'é'");
    }

    #[test]
    fn an_error_of_several_lines_becomes_one() {
        let clap = "error: unexpected argument '--forse' found\n\n  tip: a similar argument \
                    exists: '--force'\n\nUsage: cairn mkfs --force <IMAGE>\n\nFor more \
                    information, try '--help'.\n";
        assert_eq!(
            one_line(clap),
            "unexpected argument '--forse' found; tip: a similar argument exists: '--force' \
             (--help tells what there is)"
        );
        let clap = "error: the following required arguments were not provided:\n  <IMAGE>\n  \
                    <DIR>\n\nUsage: cairn mount <IMAGE> <DIR>\n";
        assert_eq!(
            one_line(clap),
            "the following required arguments were not provided: <IMAGE> <DIR> (--help tells \
             what there is)"
        );
    }
}
