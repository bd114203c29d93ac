//! A table of plain text with aligned columns.

use std::io::{self, Write};

/// Where the cells of a column are aligned.
#[derive(Clone, Copy)]
pub(crate) enum Align {
    Left,
    Right,
}

/// The title of a column, and where its cells are aligned.
pub(crate) type Column = (&'static str, Align);

/// Writes the titles and the rows. Columns are two blanks apart, and no line ends with blanks.
pub(crate) fn write(output: &mut impl Write, columns: &[Column], rows: &[Vec<String>]) -> io::Result<()> {
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([columns[column].0.len()]).max().unwrap_or(0)
        })
        .collect();
    let titles = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(columns) {
            line += &match align {
                Align::Left => format!("{cell:<width$}  "),
                Align::Right => format!("{cell:>width$}  "),
            };
        }
        writeln!(output, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut output = Vec::new();
        let rows = [vec!["a".to_owned(), "1000".to_owned()], vec!["long-name".to_owned(), "2".to_owned()]];
        write(&mut output, &[("name", Align::Left), ("n", Align::Right)], &rows).unwrap();
        assert_eq!(String::from_utf8(output).unwrap(), "name          n\na          1000\nlong-name     2\n");
    }
}
