//! Dates as HTTP and AWS write them, from seconds since 1970, without a calendar crate.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// This machine's clock, moved by `skew` seconds.
pub(crate) fn now(skew: i64) -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    i64::try_from(since.as_secs()).expect("a clock before the end of time") + skew
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn http_date(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let weekday = DAYS[usize::try_from(seconds.div_euclid(86_400).rem_euclid(7)).expect("0 to 6")];
    let (hour, minute, second) = time(seconds);
    let month = MONTHS[usize::try_from(month - 1).expect("1 to 12")];
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// `19941106T084937Z`.
pub(crate) fn amz_date(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let (hour, minute, second) = time(seconds);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// `1994-11-06T08:49:37.000Z`, as listings have it.
pub(crate) fn iso_date(seconds: i64) -> String {
    let date = amz_date(seconds);
    let (hour, minute, second) = time(seconds);
    format!("{}-{}-{}T{hour:02}:{minute:02}:{second:02}.000Z", &date[..4], &date[4..6], &date[6..8])
}

/// The other way round.
pub(crate) fn parse_amz_date(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    (text.len() == 16 && &text[8..9] == "T" && text.ends_with('Z')).then_some(())?;
    let days = days(number(0, 4)?, number(4, 6)?, number(6, 8)?);
    Some(days * 86_400 + number(9, 11)? * 3_600 + number(11, 13)? * 60 + number(13, 15)?)
}

fn time(seconds: i64) -> (i64, i64, i64) {
    let second = seconds.rem_euclid(86_400);
    (second / 3_600, second / 60 % 60, second % 60)
}

/// Days since 1970 of a date in the Gregorian calendar, years counted from March so that a leap day comes last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (month * 153 + 2) / 5
        + day
        - 719_469
}

/// Year, month and day of a day since 1970: the year is guessed from the mean length, then set right.
fn civil(day: i64) -> (i64, i64, i64) {
    let mut year = 1970 + day.div_euclid(366) - 1;
    while days(year + 1, 1, 1) <= day {
        year += 1;
    }
    let month = (1..=12).rev().find(|&month| days(year, month, 1) <= day).expect("a month of that year");
    (year, month, 1 + day - days(year, month, 1))
}
