// The state from which a block that starts in byte lane `lane_i` of a word is checked, when the lanes before it are
// fed as zeros: after so many zero bytes it has become all ones, CRC-32C's initial state. So blocks may start anywhere.
module cip_crc32c_start (
    input  cip_pkg::lane_t lane_i,
    output cip_pkg::crc_t  state_o
);
  always_comb
    unique case (lane_i)
      3'd0: state_o = 32'hffffffff;
      3'd1: state_o = 32'ha942e6bc;
      3'd2: state_o = 32'h2804363b;
      3'd3: state_o = 32'h96db52a8;
      3'd4: state_o = 32'h641f6454;
      3'd5: state_o = 32'hcbaa9b55;
      3'd6: state_o = 32'h08de2648;
      3'd7: state_o = 32'hf145ff88;
    endcase
endmodule
