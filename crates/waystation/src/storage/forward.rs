//! Storage around another one: the calls that it only hands on.

/// Defines calls of a trait that the field `$inner` answers.
#[doc(hidden)]
#[macro_export]
macro_rules! __forward {
    ($inner:tt: $(fn $call:ident($($name:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $call(&self, $($name: $kind),*) $(-> $result)? {
            self.$inner.$call($($name),*)
        })*
    };
}
pub use __forward as forward;
