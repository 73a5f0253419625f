// Rotates the byte lanes of a word: lane j of the result is lane (j + amount) mod 8 of the input.
module cip_byte_rotate (
    input  cip_pkg::word_t data_i,
    input  cip_pkg::lane_t amount_i,
    output cip_pkg::word_t data_o
);
  cip_pkg::word_t by_one, by_two;
  assign by_one = amount_i[0] ? {data_i[7:0], data_i[63:8]} : data_i;
  assign by_two = amount_i[1] ? {by_one[15:0], by_one[63:16]} : by_one;
  assign data_o = amount_i[2] ? {by_two[31:0], by_two[63:32]} : by_two;
endmodule
