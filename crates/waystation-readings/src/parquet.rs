//! Readings and windows as Apache Parquet, for pandas, `DuckDB`, Spark and the like.
//!
//! A file is a row of row groups and ends with their places. A group is complete after [`GROUP_ROWS`] rows or
//! [`GROUP_BYTES`] of names and values, is compressed with Snappy, which each reader of Parquet knows, and leaves at once.
//! So a writer holds one group, and some hundred bytes for the place of each group before it.
//!
//! Parquet has one type a column and a reading has one of six, so a reading has a column for each type, and one cell in
//! them: `value` has numbers, whole numbers as well, as that is the column which a program wants to plot; `integer` has
//! whole numbers to the last digit.

use crate::{Reading, Value, Window};
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// Rows of a group.
const GROUP_ROWS: usize = 50_000;
/// Bytes of names and values after which a group ends.
const GROUP_BYTES: usize = 4 << 20;

/// What reading and writing of Parquet ends with.
type Outcome<T> = Result<T, ParquetError>;
/// A group on its way into the file.
type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

/// A row of a Parquet file.
pub trait ParquetRow {
    /// The columns, in Parquet's own language of schemas.
    const SCHEMA: &'static str;
    /// The cells of a group, column by column.
    type Columns: Columns<Self>;
}

/// The cells of a row group, column by column.
pub trait Columns<R: ?Sized>: Default {
    /// Adds a row: the bytes of its texts.
    fn push(&mut self, row: &R) -> usize;

    /// Writes the columns in the order of the schema.
    ///
    /// # Errors
    /// A text is too long.
    fn write(&self, group: &mut Group<'_>) -> Outcome<()>;
}

/// A file that is written while its rows are read.
pub(crate) struct ParquetWriter<R: ParquetRow> {
    /// The file; `None` before its first bytes.
    file: Option<SerializedFileWriter<Vec<u8>>>,
    group: R::Columns,
    rows: usize,
    bytes: usize,
}

impl<R: ParquetRow> Default for ParquetWriter<R> {
    fn default() -> Self {
        Self {
            file: None,
            group: R::Columns::default(),
            rows: 0,
            bytes: 0,
        }
    }
}

impl<R: ParquetRow> ParquetWriter<R> {
    /// Adds rows: the bytes of the groups that they complete.
    pub(crate) fn write(&mut self, rows: &[R]) -> Outcome<Vec<u8>> {
        for row in rows {
            self.bytes += self.group.push(row);
            self.rows += 1;
            if self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
                self.close_group()?;
            }
        }
        let file = self.file()?;
        file.flush()?;
        Ok(std::mem::take(file.inner_mut()))
    }

    /// The last group and the places of all.
    pub(crate) fn end(mut self) -> Outcome<Vec<u8>> {
        self.close_group()?;
        let file = self.file()?;
        file.finish()?;
        Ok(std::mem::take(file.inner_mut()))
    }

    fn file(&mut self) -> Outcome<&mut SerializedFileWriter<Vec<u8>>> {
        let file = if let Some(file) = self.file.take() {
            file
        } else {
            let properties = WriterProperties::builder()
                .set_compression(Compression::SNAPPY)
                .set_created_by(format!("Waystation {}", env!("CARGO_PKG_VERSION")))
                .build();
            let schema = Arc::new(parse_message_type(R::SCHEMA)?);
            SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?
        };
        Ok(self.file.insert(file))
    }

    fn close_group(&mut self) -> Outcome<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let columns = std::mem::take(&mut self.group);
        (self.rows, self.bytes) = (0, 0);
        let mut group = self.file()?.next_row_group()?;
        columns.write(&mut group)?;
        group.close()?;
        Ok(())
    }
}

/// The cells of one column. A required column has a cell in each row.
struct Cells<T: DataType> {
    values: Vec<T::T>,
    /// For each row, 1 if it has a cell.
    levels: Vec<i16>,
}

impl<T: DataType> Default for Cells<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            levels: Vec::new(),
        }
    }
}

impl<T: DataType> Cells<T> {
    fn push(&mut self, cell: Option<T::T>) {
        self.levels.push(i16::from(cell.is_some()));
        self.values.extend(cell);
    }

    fn write(&self, group: &mut Group<'_>) -> Outcome<()> {
        let missing = || ParquetError::General("the schema has fewer columns".to_owned());
        let mut column = group.next_column()?.ok_or_else(missing)?;
        let cells = column.typed::<T>();
        cells.write_batch(&self.values, Some(&self.levels), None)?;
        column.close()
    }
}

impl Cells<ByteArrayType> {
    /// Adds a text that is often the one of the row before, and shares its bytes then.
    fn push_name(&mut self, name: &str) {
        let last = self.values.last();
        let same = last.filter(|last| last.data() == name.as_bytes());
        self.push(Some(same.cloned().unwrap_or_else(|| ByteArray::from(name))));
    }
}

/// Columns of readings.
#[derive(Default)]
pub struct ReadingColumns {
    device: Cells<ByteArrayType>,
    sensor: Cells<ByteArrayType>,
    time: Cells<Int64Type>,
    value: Cells<DoubleType>,
    integer: Cells<Int64Type>,
    flag: Cells<BoolType>,
    text: Cells<ByteArrayType>,
    bytes: Cells<ByteArrayType>,
    json: Cells<ByteArrayType>,
}

impl ParquetRow for Reading {
    const SCHEMA: &'static str = "message readings {
        required binary device (STRING);
        required binary sensor (STRING);
        required int64 time (TIMESTAMP(MICROS,true));
        optional double value;
        optional int64 integer;
        optional boolean flag;
        optional binary text (STRING);
        optional binary bytes;
        optional binary json (JSON);
    }";
    type Columns = ReadingColumns;
}

impl Columns<Reading> for ReadingColumns {
    fn push(&mut self, row: &Reading) -> usize {
        self.device.push_name(&row.device);
        self.sensor.push_name(&row.sensor);
        self.time.push(Some(row.time));
        let value = &row.value;
        let text = |is_here: bool, bytes: &[u8]| is_here.then(|| ByteArray::from(bytes.to_vec()));
        let bytes: &[u8] = match value {
            Value::Text(text) | Value::Json(text) => text.as_bytes(),
            Value::Bytes(bytes) => bytes,
            Value::Float(_) | Value::Integer(_) | Value::Flag(_) => &[],
        };
        self.value.push(match value {
            Value::Float(number) => Some(*number),
            Value::Integer(number) => Some(*number as f64),
            _ => None,
        });
        self.integer.push(match value {
            Value::Integer(number) => Some(*number),
            _ => None,
        });
        self.flag.push(match value {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        });
        self.text.push(text(matches!(value, Value::Text(_)), bytes));
        self.bytes
            .push(text(matches!(value, Value::Bytes(_)), bytes));
        self.json.push(text(matches!(value, Value::Json(_)), bytes));
        row.device.len() + row.sensor.len() + bytes.len()
    }

    fn write(&self, group: &mut Group<'_>) -> Outcome<()> {
        self.device.write(group)?;
        self.sensor.write(group)?;
        self.time.write(group)?;
        self.value.write(group)?;
        self.integer.write(group)?;
        self.flag.write(group)?;
        self.text.write(group)?;
        self.bytes.write(group)?;
        self.json.write(group)
    }
}

/// Columns of windows.
#[derive(Default)]
pub struct WindowColumns {
    sensor: Cells<ByteArrayType>,
    start: Cells<Int64Type>,
    count: Cells<Int64Type>,
    figures: [Cells<DoubleType>; 4],
}

impl ParquetRow for Window {
    const SCHEMA: &'static str = "message windows {
        required binary sensor (STRING);
        required int64 start (TIMESTAMP(MICROS,true));
        required int64 count (INTEGER(64,false));
        required double min;
        required double max;
        required double avg;
        required double sum;
    }";
    type Columns = WindowColumns;
}

impl Columns<Window> for WindowColumns {
    fn push(&mut self, row: &Window) -> usize {
        self.sensor.push_name(&row.sensor);
        self.start.push(Some(row.start));
        self.count.push(Some(row.count.cast_signed()));
        let figures = [row.min, row.max, row.average(), row.sum];
        for (cells, figure) in self.figures.iter_mut().zip(figures) {
            cells.push(Some(figure));
        }
        row.sensor.len()
    }

    fn write(&self, group: &mut Group<'_>) -> Outcome<()> {
        self.sensor.write(group)?;
        self.start.write(group)?;
        self.count.write(group)?;
        self.figures.iter().try_for_each(|cells| cells.write(group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::metadata::RowGroupMetaData;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use std::fs::File;
    use std::io::Write;

    fn read(bytes: &[u8]) -> SerializedFileReader<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        SerializedFileReader::new(file).unwrap()
    }

    fn written<R: ParquetRow>(pages: &[&[R]]) -> SerializedFileReader<File> {
        let mut writer = ParquetWriter::default();
        let mut file = Vec::new();
        for page in pages {
            file.extend(writer.write(page).unwrap());
        }
        file.extend(writer.end().unwrap());
        read(&file)
    }

    fn reading(sensor: &str, time: i64, value: Value) -> Reading {
        Reading {
            device: "car17".to_owned(),
            sensor: sensor.to_owned(),
            time,
            value,
        }
    }

    #[test]
    fn a_reading_has_one_cell_of_its_type() {
        let values = [
            Value::Float(0.1),
            Value::Integer(i64::MAX),
            Value::Flag(true),
            Value::Text("no \"quotes\"".to_owned()),
            Value::Bytes(vec![0, 255]),
            Value::Json("[1]".to_owned()),
        ];
        let rows = values.map(|value| reading("s", -1, value));
        let file = written(&[&rows[..2], &[], &rows[2..]]);
        let rows: Vec<_> = file.into_iter().map(Result::unwrap).collect();
        let cells = |row: usize| {
            let cells = rows[row].get_column_iter();
            let cells = cells.filter(|(_, cell)| **cell != Field::Null);
            let cells = cells.map(|(name, cell)| (name.as_str(), cell.clone()));
            cells.skip(3).collect::<Vec<_>>()
        };
        assert_eq!(cells(0), [("value", Field::Double(0.1))]);
        let whole = ("integer", Field::Long(i64::MAX));
        assert_eq!(cells(1), [("value", Field::Double(i64::MAX as f64)), whole]);
        assert_eq!(cells(2), [("flag", Field::Bool(true))]);
        assert_eq!(cells(3), [("text", Field::Str("no \"quotes\"".to_owned()))]);
        assert_eq!(cells(4), [("bytes", Field::Bytes(vec![0, 255].into()))]);
        assert_eq!(cells(5), [("json", Field::Str("[1]".to_owned()))]);
        let names: Vec<_> = rows[0].get_column_iter().take(3).collect();
        assert_eq!(names[0].1, &Field::Str("car17".to_owned()));
        assert_eq!(names[1].1, &Field::Str("s".to_owned()));
        assert_eq!(names[2].1, &Field::TimestampMicros(-1));
    }

    #[test]
    fn groups_are_of_bounded_length_and_leave_at_once() {
        let page: Vec<_> = (0..50_000)
            .map(|time| reading("speed", time, Value::Integer(time)))
            .collect();
        let mut writer = ParquetWriter::default();
        let first = writer.write(&page).unwrap();
        assert!(first.len() > GROUP_ROWS, "the group has left");
        assert!(writer.write(&page[..9]).unwrap().is_empty());
        let end = writer.end().unwrap();
        let file = read(&[first, end].concat());
        let groups = file.metadata().row_groups();
        let rows: Vec<_> = groups.iter().map(RowGroupMetaData::num_rows).collect();
        assert_eq!(rows, [50_000, 9]);
        let long = Value::Bytes(vec![7; GROUP_BYTES / 2]);
        let long = [0, 1, 2].map(|time| reading("image", time, long.clone()));
        let file = written(&[&long]);
        assert_eq!(file.metadata().num_row_groups(), 2);
    }

    #[test]
    fn a_file_without_rows_has_its_columns() {
        let file = written::<Window>(&[&[]]);
        let schema = file.metadata().file_metadata().schema_descr_ptr();
        let names: Vec<_> = schema.columns().iter().map(|it| it.name()).collect();
        let expected = ["sensor", "start", "count", "min", "max", "avg", "sum"];
        assert_eq!(names, expected);
        assert_eq!(file.into_iter().count(), 0);
    }
}
