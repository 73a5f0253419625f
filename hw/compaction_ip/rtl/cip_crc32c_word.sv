// CRC-32C (Castagnoli, reflected) of eight bytes in one step: next = M * (data ^ state), a product over GF(2).
// Row o of M says which bits of the input flow into bit o of the result; the rows follow from feeding the 64 unit
// vectors through the bit-serial register with polynomial 0x82f63b78. About 32 inputs per row: three levels of LUT6.
module cip_crc32c_word (
    input  cip_pkg::crc_t  state_i,
    input  cip_pkg::word_t data_i,
    output cip_pkg::crc_t  state_o
);
  localparam logic [cip_pkg::CrcWidth*cip_pkg::WordWidth-1:0] Rows = {
    64'h8fc8e57b1c379612, 64'h47e472bd8e1bcb09, 64'h23f2395ec70de584, 64'h11f91caf6386f2c2,
    64'h08fc8e57b1c37961, 64'h047e472bd8e1bcb0, 64'h8df7c6eef047484a, 64'h46fbe3777823a425,
    64'hacb514c0a0264400, 64'hd9926f1b4c24b412, 64'he301d2f6ba25cc1b, 64'hfe480c004125701f,
    64'h7f2406002092b80f, 64'hb05ae67b0c7eca15, 64'hd7e596469a08f318, 64'h6bf2cb234d04798c,
    64'h35f96591a6823cc6, 64'h1afcb2c8d3411e63, 64'h82b6bc1f75971923, 64'hce93bb74a6fc1a83,
    64'he88138c14f499b53, 64'h74409c60a7a4cda9, 64'hb5e8ab4b4fe5f0c6, 64'hd53cb0debbc56e71,
    64'h6a9e586f5de2b738, 64'hba87c94cb2c6cd8e, 64'hd28b01dd4554f0d5, 64'he68d6595be9dee78,
    64'hfc8e57b1c379612e, 64'h7e472bd8e1bcb097, 64'h3f2395ec70de584b, 64'h1f91caf6386f2c25
  };

  cip_pkg::word_t mixed;
  always_comb begin
    mixed = data_i ^ cip_pkg::WordWidth'(state_i);
    for (int o = 0; o < cip_pkg::CrcWidth; o++)
      state_o[o] = ^(mixed & Rows[cip_pkg::WordWidth*o+:cip_pkg::WordWidth]);
  end
endmodule
