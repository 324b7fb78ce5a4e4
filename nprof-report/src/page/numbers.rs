//! Numbers as text for the script: 7 bits a byte, the lowest first, in base64. Pure.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A sequence of numbers.
#[derive(Clone, Debug, Default)]
pub struct Numbers(Vec<u8>);

impl Numbers {
    /// Appends a number.
    pub fn push(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Appends a number that may be negative: twice it, or one less than twice its amount.
    pub fn push_signed(&mut self, number: i64) {
        self.push(((number << 1) ^ (number >> 63)) as u64);
    }

    /// Returns the length of the text.
    pub fn text_bytes(&self) -> usize {
        self.0.len().div_ceil(3) * 4
    }

    /// Returns the text.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.text_bytes());
        for bytes in self.0.chunks(3) {
            let byte = |index| u32::from(bytes.get(index).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for place in 0..4 {
                let digit = bits >> (18 - 6 * place) & 63;
                // Three bytes are four digits, two are three, one is two.
                let is_used = place <= bytes.len();
                text.push(if is_used { char::from(ALPHABET[digit as usize]) } else { '=' });
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_that_of_rfc_4648() {
        let text = |bytes: &[u8]| Numbers(bytes.to_vec()).text();
        for (bytes, expected) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
        ] {
            assert_eq!(text(bytes), expected);
        }
    }

    #[test]
    fn numbers_have_seven_bits_a_byte() {
        let mut numbers = Numbers::default();
        [0, 127, 128, u64::MAX].into_iter().for_each(|number| numbers.push(number));
        assert_eq!(numbers.0[..4], [0, 127, 0x80, 1]);
        assert_eq!(numbers.0.len(), 4 + 10);
        assert_eq!(numbers.text().len(), numbers.text_bytes());
    }

    #[test]
    fn small_negative_numbers_are_short() {
        let mut numbers = Numbers::default();
        [0, -1, 1, -64].into_iter().for_each(|number| numbers.push_signed(number));
        assert_eq!(numbers.0, [0, 1, 2, 127]);
        numbers.push_signed(i64::MIN);
        assert_eq!(numbers.0.len(), 4 + 10);
    }
}
