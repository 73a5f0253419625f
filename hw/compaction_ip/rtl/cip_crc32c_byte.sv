// CRC-32C of one byte in one step; for the odd bytes at the end of a block. See cip_crc32c_word.
module cip_crc32c_byte (
    input  cip_pkg::crc_t state_i,
    input  logic [7:0]    data_i,
    output cip_pkg::crc_t state_o
);
  localparam logic [cip_pkg::CrcWidth*8-1:0] Rows = {
    8'h8f, 8'h47, 8'h23, 8'h11,
    8'h08, 8'h04, 8'h8d, 8'h46,
    8'hac, 8'hd9, 8'he3, 8'hfe,
    8'h7f, 8'hb0, 8'hd7, 8'h6b,
    8'h35, 8'h1a, 8'h82, 8'hce,
    8'he8, 8'h74, 8'hb5, 8'hd5,
    8'h6a, 8'hba, 8'hd2, 8'he6,
    8'hfc, 8'h7e, 8'h3f, 8'h1f
  };

  logic [7:0] mixed;
  always_comb begin
    mixed = data_i ^ state_i[7:0];
    for (int o = 0; o < cip_pkg::CrcWidth; o++) state_o[o] = ^(mixed & Rows[8*o+:8]);
    state_o = state_o ^ (state_i >> 8);
  end
endmodule
