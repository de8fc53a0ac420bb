//! The table of elementwise ops. From one row follow the op's line in the registry, a method of
//! [`GraphBuilder`](crate::GraphBuilder), a method of the user's `Tensor`, and a Python function
//! with its documentation. No other list of these ops exists.

/// Passes the rows to the macro `$then`.
///
/// A row is `HOW NAME CODE DEFINITION, PYTHON_NAME "what it gives";`. `HOW` is the conversion that
/// user functions apply to operands before they record the op, since ops themselves convert
/// nothing:
///
/// * `real`: bool and integers become float32;
/// * `part`: every dtype except float64 becomes float32;
/// * `count`: bool becomes int64;
/// * `whole`: for rounding ops of one operand: bool and integers are returned unchanged;
/// * `test`: for tests of one operand with one answer for all bool and integers (true for
///   `isfinite`);
/// * `keep`: no conversion;
/// * `own`: the method is written by hand.
#[macro_export]
macro_rules! elementwise_table {
    ($then:ident) => { $then! {
    unary {
        own abs Abs elementwise::ABS, abs
            "The absolute value, real for complex numbers; integers wrap at their smallest.";
        keep neg Neg elementwise::NEG, negative "The negative; wraps for unsigned integers.";
        keep sign Sign elementwise::SIGN, sign "-1, 0 or 1, NaN for NaN; ``z / |z|`` if complex.";
        whole floor Floor elementwise::FLOOR, floor "The largest integer not above each element.";
        whole ceil Ceil elementwise::CEIL, ceil "The smallest integer not below each element.";
        own conj Conj elementwise::CONJ, conj "The complex conjugate; real numbers as they are.";
        whole trunc Trunc elementwise::TRUNC, trunc "The integer part.";
        real exp Exp elementwise::EXP, exp "The exponential.";
        real expm1 Expm1 elementwise::EXPM1, expm1 "``exp(x) - 1``, precise near 0.";
        real exp2 Exp2 elementwise::EXP2, exp2 "Two to the power of each element.";
        real log Log elementwise::LOG, log "The natural logarithm; NaN below 0, -inf at 0.";
        real log1p Log1p elementwise::LOG1P, log1p "``log(1 + x)``, precise near 0.";
        real log2 Log2 elementwise::LOG2, log2 "The logarithm to base 2.";
        real log10 Log10 elementwise::LOG10, log10 "The logarithm to base 10.";
        real sqrt Sqrt elementwise::SQRT, sqrt "The square root; NaN below 0.";
        real rsqrt Rsqrt elementwise::RSQRT, rsqrt "One over the square root.";
        real sin Sin elementwise::SIN, sin "The sine.";
        real cos Cos elementwise::COS, cos "The cosine.";
        real tan Tan elementwise::TAN, tan "The tangent.";
        real asin Asin elementwise::ASIN, asin "The inverse sine.";
        real acos Acos elementwise::ACOS, acos "The inverse cosine.";
        real atan Atan elementwise::ATAN, atan "The inverse tangent.";
        real sinh Sinh elementwise::SINH, sinh "The hyperbolic sine.";
        real cosh Cosh elementwise::COSH, cosh "The hyperbolic cosine.";
        real tanh Tanh elementwise::TANH, tanh "The hyperbolic tangent.";
        real asinh Asinh elementwise::ASINH, asinh "The inverse hyperbolic sine.";
        real acosh Acosh elementwise::ACOSH, acosh "The inverse hyperbolic cosine.";
        real atanh Atanh elementwise::ATANH, atanh "The inverse hyperbolic tangent.";
        real erf Erf elementwise::ERF, erf "The error function.";
        real erfc Erfc elementwise::ERFC, erfc "One minus the error function, precise for large x.";
        real erfinv Erfinv elementwise::ERFINV, erfinv
            "The number whose error function is x; infinite at -1 and 1, NaN beyond.";
        real lgamma Lgamma elementwise::LGAMMA, lgamma
            "The logarithm of the gamma function's absolute value; inf at 0 and below it at integers.";
        real digamma Digamma elementwise::DIGAMMA, digamma
            "The logarithmic derivative of the gamma function.";
        real i0 I0 elementwise::I0, i0 "The modified Bessel function of the first kind, order 0.";
        real i1 I1 elementwise::I1, i1 "The modified Bessel function of the first kind, order 1.";
        keep bitwise_not Not elementwise::NOT, bitwise_not
            "Logical not of bool, bits flipped of integers.";
        test isnan IsNan elementwise::IS_NAN, isnan "Whether each element is NaN. Dtype: bool.";
        test isinf IsInf elementwise::IS_INF, isinf "Whether each element is infinite. Dtype: bool.";
        test isfinite IsFinite elementwise::IS_FINITE, isfinite
            "Whether each element is neither NaN nor infinite. Dtype: bool.";
        real signbit Signbit elementwise::SIGNBIT, signbit
            "Whether the sign bit is set, of zeros and NaN too. Dtype: bool.";
        keep stop_gradient StopGradient composite::STOP_GRADIENT, stop_gradient
            "The same value, held constant by gradients.";
        keep relu Relu composite::RELU, relu "``max(x, 0)``; NaN for NaN.";
        real sigmoid Sigmoid composite::SIGMOID, sigmoid
            "The logistic function, ``1 / (1 + exp(-x))``.";
        real log_sigmoid LogSigmoid composite::LOG_SIGMOID, log_sigmoid
            "The logarithm of the logistic function, without overflow.";
        real silu Silu composite::SILU, silu "Each element times its logistic function.";
        real softplus Softplus composite::SOFTPLUS, softplus
            "``log(1 + exp(x))``, without overflow.";
    }
    binary {
        count add Add elementwise::ADD, add "The sum.";
        count sub Sub elementwise::SUB, subtract "The difference.";
        count mul Mul elementwise::MUL, multiply "The product.";
        real div Div elementwise::DIV, divide "The quotient; floating-point for integers.";
        count floor_divide FloorDivide elementwise::FLOOR_DIVIDE, floor_divide
            "The quotient rounded down; 0 for integer division by zero.";
        count remainder Remainder elementwise::REMAINDER, remainder
            "The remainder of floor division, signed as the divisor.";
        count fmod Fmod elementwise::FMOD, fmod
            "The remainder of truncated division, signed as the first; of integers 0 for a divisor of 0.";
        count pow Pow elementwise::POW, power "The first to the power of the second.";
        keep maximum Maximum elementwise::MAXIMUM, maximum "The larger of two, NaN if either is.";
        keep minimum Minimum elementwise::MINIMUM, minimum "The smaller of two, NaN if either is.";
        real atan2 Atan2 elementwise::ATAN2, atan2 "The angle of the point (second, first).";
        real hypot Hypot elementwise::HYPOT, hypot "``sqrt(x1**2 + x2**2)``, without overflow.";
        real logaddexp Logaddexp composite::LOGADDEXP, logaddexp
            "``log(exp(x1) + exp(x2))``, without overflow.";
        real copysign Copysign elementwise::COPYSIGN, copysign
            "The magnitude of the first with the sign of the second.";
        real nextafter Nextafter elementwise::NEXTAFTER, nextafter
            "The next value after the first in the direction of the second.";
        real polygamma Polygamma elementwise::POLYGAMMA, polygamma
            "The x1-th derivative of digamma at x2; x1 is rounded to a whole number, NaN below 0.";
        real igamma Igamma elementwise::IGAMMA, igamma
            "The regularised lower incomplete gamma function of order x1 at x2; NaN where either is negative.";
        real igammac Igammac elementwise::IGAMMAC, igammac
            "The regularised upper incomplete gamma function, one minus ``igamma``, precise where it is small.";
        real igamma_grad_a IgammaGradA elementwise::IGAMMA_GRAD_A, igamma_grad_a
            "The derivative of ``igamma`` by its first argument.";
        part complex Complex elementwise::COMPLEX, complex
            "The complex number of a real and an imaginary part.";
        count shift_left ShiftLeft elementwise::SHIFT_LEFT, bitwise_left_shift
            "Bits shifted left; 0 for shifts that are negative or as wide as the dtype.";
        count shift_right ShiftRight elementwise::SHIFT_RIGHT, bitwise_right_shift
            "Bits shifted right, the sign kept; all of them for shifts that are negative or as wide as the dtype.";
        keep bitwise_and And elementwise::AND, bitwise_and
            "Logical and of bool, bitwise and of integers.";
        keep bitwise_or Or elementwise::OR, bitwise_or
            "Logical or of bool, bitwise or of integers.";
        keep bitwise_xor Xor elementwise::XOR, bitwise_xor
            "Exclusive or of bool, bitwise exclusive or of integers.";
        keep eq Eq elementwise::EQ, equal "Whether both are equal. Dtype: bool.";
        keep ne Ne elementwise::NE, not_equal "Whether they differ. Dtype: bool.";
        keep lt Lt elementwise::LT, less "Whether the first is less. Dtype: bool.";
        keep le Le elementwise::LE, less_equal "Whether the first is at most the second. Dtype: bool.";
        keep gt Gt elementwise::GT, greater "Whether the first is greater. Dtype: bool.";
        keep ge Ge elementwise::GE, greater_equal
            "Whether the first is at least the second. Dtype: bool.";
    }
    } };
}
