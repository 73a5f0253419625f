// Rotates the eight byte lanes of a word: lane j of the result is lane (j + amount) mod 8 of the input.
module byte_rotate (
    input  logic [63:0] data,
    input  logic [ 2:0] amount,
    output logic [63:0] result
);
  logic [63:0] by_one, by_two;
  assign by_one = amount[0] ? {data[7:0], data[63:8]} : data;
  assign by_two = amount[1] ? {by_one[15:0], by_one[63:16]} : by_one;
  assign result = amount[2] ? {by_two[31:0], by_two[63:32]} : by_two;
endmodule
