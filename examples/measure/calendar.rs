//! Minutes as date and time.

/// A minute since 1970 as date and time, in UTC.
pub(crate) fn calendar(minute: u32) -> String {
    let (days, minute) = (minute / 1440 + 719_468, minute % 1440);
    let century = (days * 4 + 3) / 146_097;
    let day_of_century = days - century * 146_097 / 4;
    let year_of_century = (day_of_century * 4 + 3) / 1461;
    let day_of_year = day_of_century - year_of_century * 1461 / 4;
    let march_month = (day_of_year * 5 + 2) / 153;
    let day = day_of_year - (march_month * 153 + 2) / 5 + 1;
    let (month, carry) = if march_month < 10 { (march_month + 3, 0) } else { (march_month - 9, 1) };
    let year = century * 100 + year_of_century + carry;
    format!("{year}-{month:02}-{day:02} {:02}:{:02}", minute / 60, minute % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_shown_as_the_calendar_does() {
        assert_eq!(calendar(0), "1970-01-01 00:00");
        assert_eq!(calendar(11_016 * 1440 + 61), "2000-02-29 01:01");
        assert_eq!(calendar(15_706 * 1440 - 1), "2012-12-31 23:59");
    }
}
