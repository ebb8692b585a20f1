//! Figures of one run, and tables of many.

use serde_json::Value;

/// What a table has a column for: its title, the step, the figure of the step.
const COLUMNS: [(&str, &str, &str); 6] = [
    ("write GB/s", "write", "gb_per_s"),
    ("rewrite GB/s", "rewrite", "gb_per_s"),
    ("read GB/s", "read", "gb_per_s"),
    ("write CPU s/GB", "write", "cpu_seconds_per_gb"),
    ("read CPU s/GB", "read", "cpu_seconds_per_gb"),
    ("exists pages/s", "exists", "pages_per_s"),
];

/// One figure for each column, where the program has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures([Option<f64>; COLUMNS.len()]);

impl Figures {
    /// From a document of `hicache bench file` or of the harness.
    pub(super) fn add(&mut self, document: &Value) {
        for (figure, (_, step, name)) in self.0.iter_mut().zip(COLUMNS) {
            *figure = document[step][name].as_f64().or(*figure);
        }
    }

    /// From fio's document about one direction.
    pub(super) fn add_fio(&mut self, document: &Value) {
        let job = &document["jobs"][0];
        for (figure, (_, step, name)) in self.0.iter_mut().zip(COLUMNS) {
            let bytes = job[step]["io_bytes"].as_f64().unwrap_or(0.0);
            if bytes == 0.0 {
                continue;
            }
            *figure = match name {
                "gb_per_s" => job[step]["bw_bytes"].as_f64().map(|rate| rate / 1e9),
                // Percent of the job's milliseconds.
                "cpu_seconds_per_gb" => (|| {
                    let percent = job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?;
                    Some(percent / 100.0 * job["job_runtime"].as_f64()? / 1e3 / (bytes / 1e9))
                })(),
                _ => None,
            };
        }
    }
}

/// Medians over the rounds, a row for each contender.
pub(super) fn print_rates(names: &[&str], figures: &[Vec<Figures>]) {
    println!("\n| | {} |", COLUMNS.map(|(title, ..)| title).join(" | "));
    println!("| --- |{}", " ---: |".repeat(COLUMNS.len()));
    for (name, rounds) in names.iter().zip(figures) {
        let cell = |column: usize| {
            let values = rounds.iter().filter_map(|figures| figures.0[column]).collect();
            spread(values).map_or("-".to_owned(), |[_, median, _]| digits(median))
        };
        println!("| {name} | {} |", (0..COLUMNS.len()).map(cell).collect::<Vec<_>>().join(" | "));
    }
}

/// Each contender's figures over those of `base` in the same round; no row for those that are bases themselves.
pub(super) fn print_ratios(names: &[&str], figures: &[Vec<Figures>], base: usize, bases: &[usize]) {
    println!("\n| over {} | {} |", names[base], COLUMNS.map(|(title, ..)| first_words(title)).join(" | "));
    println!("| --- |{}", " ---: |".repeat(COLUMNS.len()));
    for (index, name) in names.iter().enumerate().filter(|(index, _)| !bases.contains(index)) {
        let cell = |column: usize| {
            let rounds = figures[index].iter().zip(&figures[base]);
            let ratio = |(figures, base): (&Figures, &Figures)| {
                Some(figures.0[column]? / base.0[column].filter(|base| *base > 0.0)?)
            };
            let ratios = spread(rounds.filter_map(ratio).collect());
            ratios
                .map_or("-".to_owned(), |[least, median, most]| format!("{median:.2} ({least:.2}-{most:.2})"))
        };
        println!("| {name} | {} |", (0..COLUMNS.len()).map(cell).collect::<Vec<_>>().join(" | "));
    }
}

/// A title without its unit.
fn first_words(title: &str) -> &str {
    ["GB/s", "s/GB", "pages/s"].iter().find_map(|unit| title.strip_suffix(unit)).unwrap_or(title).trim_end()
}

/// Least, median and most.
fn spread(mut values: Vec<f64>) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    };
    Some([least, median, most])
}

/// Three digits, and no more zeros than they need.
fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_kinds_of_document_are_read() {
        let mut ours = Figures::default();
        ours.add(&json!({ "read": { "gb_per_s": 2.0, "cpu_seconds_per_gb": 0.5 }, "exists": { "pages_per_s": 9.0 } }));
        assert_eq!(ours, Figures([None, None, Some(2.0), None, Some(0.5), Some(9.0)]));

        let mut fio = Figures::default();
        fio.add_fio(&json!({ "jobs": [{
            "usr_cpu": 10.0, "sys_cpu": 15.0, "job_runtime": 2000,
            "write": { "io_bytes": 4_000_000_000_u64, "bw_bytes": 2_000_000_000_u64 }, "read": { "io_bytes": 0 },
        }] }));
        assert_eq!(fio, Figures([Some(2.0), None, None, Some(0.125), None, None]));
    }

    #[test]
    fn the_spread_is_of_values_that_occurred_but_for_an_even_median() {
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), Some([1.0, 2.0, 3.0]));
        assert_eq!(spread(vec![3.0, 1.0, 2.0, 4.0]), Some([1.0, 2.5, 4.0]));
        assert_eq!(spread(Vec::new()), None);
    }
}
