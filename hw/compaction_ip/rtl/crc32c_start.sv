// The state from which a block that starts in byte lane `lane` of a word is checked, when the lanes before it are
// fed as zeros: after `lane` zero bytes it has become all ones, CRC-32C's initial state. So blocks may start anywhere.
module crc32c_start (
    input  logic [ 2:0] lane,
    output logic [31:0] state
);
  always_comb
    unique case (lane)
      3'd0: state = 32'hffffffff;
      3'd1: state = 32'ha942e6bc;
      3'd2: state = 32'h2804363b;
      3'd3: state = 32'h96db52a8;
      3'd4: state = 32'h641f6454;
      3'd5: state = 32'hcbaa9b55;
      3'd6: state = 32'h08de2648;
      3'd7: state = 32'hf145ff88;
    endcase
endmodule
