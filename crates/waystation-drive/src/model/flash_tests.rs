//! Decisions of a channel, by scripts: which step comes next in which state.

use super::*;

/// A channel from words, one a die: `-` idle, `b` busy, `R`/`r` holds data of the host / of compaction; then `:` and what
/// is queued: `H`/`L` reads, `W`/`w` writes of host and compaction.
fn channel(words: &str) -> Channel<()> {
    let operation = |action, class| Operation {
        action,
        class,
        tag: (),
    };
    let die = |word: &str| {
        let (state, queued) = word.split_once(':').unwrap_or((word, ""));
        let mut queues: [[VecDeque<Operation<()>>; 2]; 2] = Default::default();
        for letter in queued.chars() {
            let (action, class) = match letter {
                'H' => (Action::Read, Class::High),
                'L' => (Action::Read, Class::Low),
                'W' => (Action::Write, Class::High),
                _ => (Action::Write, Class::Low),
            };
            queues[usize::from(class == Class::Low)][usize::from(action == Action::Write)]
                .push_back(operation(action, class));
        }
        let state = match state {
            "-" => State::Idle,
            "R" => State::Holds(operation(Action::Read, Class::High)),
            "r" => State::Holds(operation(Action::Read, Class::Low)),
            _ => State::Busy(operation(Action::Write, Class::Low)),
        };
        Die {
            state,
            queues,
            busy: 0,
        }
    };
    Channel {
        dies: words.split(' ').map(die).collect(),
        carries: false,
        turn: 0,
        waiting: 0,
        holding: 0,
        busy: 0,
    }
}

#[test]
fn the_host_goes_first_and_reads_are_triggered_before_data_is_fetched() {
    for (dies, step) in [
        ("- -", "nothing"),
        ("-:L -:H", "die 1 begins the host's read"),
        ("-:L -:W", "die 1 begins the host's write"),
        ("-:W -:H", "die 1 begins the host's read"),
        ("R -:H", "die 1 begins the host's read"),
        ("R -:L", "die 0 hands over"),
        ("r -:L", "die 1 begins compaction's read"),
        ("r -:w", "die 1 begins compaction's write"),
        ("-:w r", "die 0 begins compaction's write"),
        ("b:H r", "die 1 hands over"),
        // Data of compaction keeps the host from die 0: it goes before compaction's own read.
        ("r:H -:L", "die 0 hands over"),
        ("r:H -:H", "die 1 begins the host's read"),
        ("b:H b:L", "nothing"),
    ] {
        let said = match next(&channel(dies), true) {
            None => "nothing".to_owned(),
            Some(Step::Fetch { die }) => format!("die {die} hands over"),
            Some(Step::Begin { die, class, queue }) => format!(
                "die {die} begins {} {}",
                ["the host's", "compaction's"][class],
                ["read", "write"][queue]
            ),
        };
        assert_eq!(said, step, "{dies}");
    }
}
