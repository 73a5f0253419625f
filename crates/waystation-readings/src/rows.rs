//! Rows in the form that a client asks for: lines of JSON, CSV or Parquet, written page by page while they are read.

use crate::parquet::{ParquetRow, ParquetWriter};
use crate::store::Error;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A JSON object on each line.
    Lines,
    /// Comma-separated values with a head, as RFC 4180 has them.
    Csv,
    /// An Apache Parquet file.
    Parquet,
}

impl Form {
    /// The form of a name; `None`: there is no such form.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "ndjson" => Self::Lines,
            "csv" => Self::Csv,
            "parquet" => Self::Parquet,
            _ => return None,
        })
    }

    /// Its media type.
    pub fn media(self) -> &'static str {
        match self {
            Self::Lines => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }
}

/// What is written a row at a time: a reading or a window.
pub trait Row: ParquetRow {
    /// The first line as CSV.
    const CSV_HEAD: &'static str;

    /// The row as a line of JSON.
    fn push_json(&self, text: &mut String);

    /// The row as a line of CSV.
    fn push_csv(&self, text: &mut String);
}

/// Rows on their way to a client. The bytes of all calls together, in order, are the answer.
///
/// # Example
/// ```
/// use waystation_readings::{Form, Reading, RowWriter, Value};
/// # fn main() -> Result<(), waystation_readings::Error> {
/// let (device, sensor) = ("car17".to_owned(), "speed".to_owned());
/// let reading = Reading { device, sensor, time: 1_000_000, value: Value::Integer(50) };
/// let mut writer = RowWriter::new(Form::Csv);
/// let mut answer = writer.write(&[reading])?;
/// answer.extend(writer.end()?);
/// assert_eq!(answer, b"device,sensor,time,value\r\ncar17,speed,1000000,50\r\n");
/// # Ok(())
/// # }
/// ```
pub struct RowWriter<R: Row>(State<R>);

enum State<R: Row> {
    Lines,
    /// Whether the head is written.
    Csv(bool),
    Parquet(Box<ParquetWriter<R>>),
}

impl<R: Row> RowWriter<R> {
    /// A writer of `form` without rows.
    pub fn new(form: Form) -> Self {
        Self(match form {
            Form::Lines => State::Lines,
            Form::Csv => State::Csv(false),
            Form::Parquet => State::Parquet(Box::default()),
        })
    }

    /// Writes `rows`: the bytes that are complete by now, which may be none.
    ///
    /// # Errors
    /// [`Error::Parquet`] if a text is longer than that format's 2 GiB.
    pub fn write(&mut self, rows: &[R]) -> Result<Vec<u8>, Error> {
        let mut text = String::new();
        match &mut self.0 {
            State::Lines => {
                for row in rows {
                    row.push_json(&mut text);
                }
            }
            State::Csv(has_head) => {
                if !std::mem::replace(has_head, true) {
                    text.push_str(R::CSV_HEAD);
                }
                for row in rows {
                    row.push_csv(&mut text);
                }
            }
            State::Parquet(file) => return Ok(file.write(rows)?),
        }
        Ok(text.into_bytes())
    }

    /// The end of the answer.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn end(mut self) -> Result<Vec<u8>, Error> {
        // An answer without rows has its head.
        let mut bytes = self.write(&[])?;
        if let State::Parquet(file) = self.0 {
            bytes.extend(file.end()?);
        }
        Ok(bytes)
    }
}
