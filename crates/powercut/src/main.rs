//! Power cuts through the real path. The real `cairn serve` runs on a disk that notes every write,
//! every FUA and every flush it is asked (recorder.rs); a scenario of the crash explorer is done
//! through its mount (drive.rs); then the images that a power cut could have left are judged as the
//! simulator's are (lab::elsewhere). What the simulator cannot see is in between: FUSE, the host's
//! workers, rings, and ways to the disk.

mod drive;
mod options;
mod recorder;
mod run;

use clap::Parser;
use lab::Setting;
use options::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = Options::parse();
    let settings = match options.settings() {
        Ok(settings) => settings,
        Err(why) => {
            eprintln!("powercut: {why}");
            return ExitCode::from(2);
        }
    };
    let mut broken = false;
    for setting in settings {
        match run::explore(&options, setting) {
            Ok(found) => {
                broken |= !found.broken.is_empty();
                tell(setting, &found);
            }
            Err(why) => {
                eprintln!("powercut: {}: {why}", name(setting));
                return ExitCode::from(3);
            }
        }
    }
    ExitCode::from(u8::from(broken))
}

fn name(setting: Setting) -> String {
    format!("{} {}", setting.mode, setting.options()).trim_end().to_owned()
}

fn tell(setting: Setting, found: &run::Found) {
    let run::Found { runs, states, broken } = found;
    println!("{:24} {states:7} states of {runs:4} runs, {} broken", name(setting), broken.len());
    broken.iter().for_each(|b| println!("  {b}"));
}
